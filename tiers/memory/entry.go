package memory

import (
	"sync/atomic"
	"time"

	"saltern/job"
	"saltern/tiers"
)

// entry is one job that is held, or the knowledge that there is none. Fields without a note are
// guarded by the mutex of its shard.
type entry struct {
	jid   job.JID // constant
	shard *shard  // constant

	head       job.Head
	returns    returnSet
	hasReturns bool // returns are all that the job has
	absent     bool // constant: there is no such job
	expires    time.Duration
	// headFresh and returnsFresh are until when the entry may be answered with; 0 for always.
	headFresh, returnsFresh time.Duration

	headSize int64
	cost     int64
	// ticket is what ristretto holds for the entry; nil while it is in a queue, or on its way from
	// there to ristretto.
	ticket *ticket
	// dead says that the entry was taken out of the index.
	dead bool

	used atomic.Bool // read or written since its queue last passed it

	prev, next *entry // guarded by the mutex of its queue, like queued
	queued     int64  // what the queue counts for it
}

// entryOverhead is about what an entry takes in memory beside its facts: the entry, its ticket, and
// its places in the index and in two maps of ristretto.
const entryOverhead = 448

// newEntry makes an entry of a snapshot.
func newEntry(s *shard, snap tiers.Snapshot, expires, fresh time.Duration) *entry {
	e := &entry{jid: snap.Head.JID, shard: s, absent: snap.Absent, expires: expires}
	e.head.JID = e.jid
	if !e.absent {
		e.fill(snap, fresh)
	}
	e.measure()
	return e
}

// fill merges a snapshot, fresh until then, into the entry.
func (e *entry) fill(snap tiers.Snapshot, fresh time.Duration) {
	e.head = job.MergeHead(e.head, snap.Head)
	e.headSize, e.headFresh = 0, fresh
	if !snap.HasReturns {
		return
	}
	e.hasReturns, e.returnsFresh = true, fresh
	for i := range snap.Returns {
		e.returns.merge(&snap.Returns[i])
	}
}

// merge merges a fact into the entry and says what became of it.
func (e *entry) merge(f job.Fact) job.Outcome {
	r, isReturn := f.(job.Return)
	if !isReturn {
		e.head = e.head.With(f)
		e.headSize = 0
		return job.Stored
	}
	if e.head.NoCache != nil {
		return job.Dropped
	}
	if !e.hasReturns {
		return job.Stored
	}
	return e.returns.merge(&r)
}

// measure sets the cost and gives by how much it grew. The head of a large job is measured only
// when it changed: a job of 10,000 minions gets 10,000 returns.
func (e *entry) measure() (grown int64) {
	if e.headSize == 0 {
		e.headSize = int64(e.head.Size())
	}
	was := e.cost
	e.cost = entryOverhead + e.headSize + e.returns.bytes
	return e.cost - was
}

// shrink brings the entry within max by giving up its returns, and says whether that was enough.
func (e *entry) shrink(max int64) bool {
	if e.cost > max && e.hasReturns {
		e.returns, e.hasReturns = returnSet{}, false
		e.measure()
	}
	return e.cost <= max
}

// touch notes that the entry was used. It only writes what is not so already: readers on all cores
// share the entry.
func (e *entry) touch() {
	if !e.used.Load() {
		e.used.Store(true)
	}
}
