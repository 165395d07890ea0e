package journal

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"saltern/job"
)

// state is how far an entry is.
type state uint8

const (
	sending   state = iota // on its way to the store
	waiting                // to be replayed
	confirmed              // in the store
)

// entry is one write. Its fields are guarded by the queue's mutex.
type entry struct {
	seq   uint64
	size  int
	count int // of facts
	at    time.Time
	state state
	// facts are kept while the log may not have them, and only then.
	facts  []job.Fact
	logged bool
	// failed: the log could not take it.
	failed bool
	// confirmedAt is when the store confirmed it.
	confirmedAt time.Time
}

// queue has the entries in the order of their numbers, without gaps.
type queue struct {
	mu      sync.Mutex
	entries []*entry
	open    int // the index of the first entry that is not confirmed
	next    uint64
	bytes   int64
	pending int // entries that are not confirmed
	facts   int // in them
	// changed is closed with the next confirmation; nil while nobody waits for one.
	changed chan struct{}
}

func (q *queue) init() { q.next = 1 }

// restore adds an entry that the log already has.
func (q *queue) restore(seq uint64, size, count int, now time.Time) *entry {
	e := &entry{seq: seq, size: size, count: count, at: now, state: waiting, logged: true}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.push(e)
	return e
}

// add makes an entry for a write, or nil when there is no room for it below the quota.
func (q *queue) add(facts []job.Fact, size int, quota int64, now time.Time) *entry {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.bytes+int64(size) > quota {
		return nil
	}
	e := &entry{seq: q.next, size: size, count: len(facts), at: now, state: sending, facts: facts}
	q.push(e)
	return e
}

func (q *queue) push(e *entry) {
	q.entries = append(q.entries, e)
	q.next = e.seq + 1
	q.bytes += int64(e.size)
	q.pending++
	q.facts += e.count
}

// written notes that the log has an entry; what it held in memory can go unless it is being sent.
func (q *queue) written(e *entry) {
	q.mu.Lock()
	defer q.mu.Unlock()
	e.logged = true
	if e.state != sending {
		e.facts = nil
	}
}

// confirm notes that the store has an entry.
func (q *queue) confirm(e *entry, now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if e.state == confirmed {
		return
	}
	e.state, e.confirmedAt, e.facts = confirmed, now, nil
	q.pending--
	q.facts -= e.count
	for q.open < len(q.entries) && q.entries[q.open].state == confirmed {
		q.open++
	}
	if q.changed != nil {
		close(q.changed)
		q.changed = nil
	}
}

// unwritten notes that the log could not take an entry, and says whether the store has it or may
// yet take it.
func (q *queue) unwritten(e *entry) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	e.failed = true
	return e.state != waiting
}

// wait notes that the store did not take an entry, and says whether the log has it or may yet take
// it.
func (q *queue) wait(e *entry) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if e.failed {
		return false
	}
	e.state = waiting
	if e.logged {
		e.facts = nil
	}
	return true
}

// held gives the facts of an entry where they are in memory.
func (q *queue) held(e *entry) []job.Fact {
	q.mu.Lock()
	defer q.mu.Unlock()
	return e.facts
}

// oldest gives up to n waiting entries of at most size bytes together, oldest first, at least one.
// Entries that the log does not have yet are left for later.
func (q *queue) oldest(n, size int) []*entry {
	q.mu.Lock()
	defer q.mu.Unlock()
	var out []*entry
	for _, e := range q.entries[q.open:] {
		if e.state != waiting || !e.logged {
			continue
		}
		if len(out) > 0 && (len(out) == n || e.size > size) {
			break
		}
		size -= e.size
		out = append(out, e)
	}
	return out
}

// trim forgets the entries before the first that has to stay and gives its number; 0 for none to
// forget.
func (q *queue) trim(confirmedBefore time.Time) uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := 0
	for n < len(q.entries) && q.entries[n].state == confirmed &&
		(q.entries[n].logged || q.entries[n].failed) && !q.entries[n].confirmedAt.After(confirmedBefore) {
		q.bytes -= int64(q.entries[n].size)
		n++
	}
	if n == 0 {
		return 0
	}
	first := q.entries[n-1].seq + 1
	q.entries = append([]*entry(nil), q.entries[n:]...)
	q.open -= n
	return first
}

// settled says whether every entry below seq is confirmed, and else gives a channel that closes
// when that may have changed.
func (q *queue) settled(seq uint64) (bool, <-chan struct{}) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.open == len(q.entries) || q.entries[q.open].seq >= seq {
		return true, nil
	}
	if q.changed == nil {
		q.changed = make(chan struct{})
	}
	return false, q.changed
}

// head is the number of the next entry.
func (q *queue) head() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.next
}

func (q *queue) status() Status {
	q.mu.Lock()
	defer q.mu.Unlock()
	st := Status{Entries: q.pending, Facts: q.facts, Bytes: q.bytes}
	if q.open < len(q.entries) {
		st.Oldest = q.entries[q.open].at
	}
	return st
}

// after gives up to n entries whose numbers are above seq, oldest first, as they are now.
func (q *queue) after(seq uint64, n int) []entry {
	q.mu.Lock()
	defer q.mu.Unlock()
	i, _ := slices.BinarySearchFunc(q.entries, seq+1, func(e *entry, seq uint64) int {
		return cmp.Compare(e.seq, seq)
	})
	var out []entry
	for ; i < len(q.entries) && len(out) < n; i++ {
		out = append(out, *q.entries[i])
	}
	return out
}

// retained gives the confirmed entries that came at or after since, oldest first.
func (q *queue) retained(since time.Time) []*entry {
	q.mu.Lock()
	defer q.mu.Unlock()
	var out []*entry
	for _, e := range q.entries {
		if e.state == confirmed && e.logged && !e.at.Before(since) {
			out = append(out, e)
		}
	}
	return out
}

// reopen makes a confirmed entry wait again. It says no for one that was trimmed or does not need it.
func (q *queue) reopen(e *entry) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	i, there := slices.BinarySearchFunc(q.entries, e.seq, func(e *entry, seq uint64) int {
		return cmp.Compare(e.seq, seq)
	})
	if !there || e.state != confirmed {
		return false
	}
	e.state = waiting
	q.pending++
	q.facts += e.count
	q.open = min(q.open, i)
	return true
}
