package proxy

import (
	"cmp"
	"context"
	"errors"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"saltern/job"
	"saltern/policy"
	"saltern/tiers"
)

// fills sees to it that filling the cache hides no write. A reading can take long, and what it read
// is then old:
//
//  1. a reader finds nothing in the cache and reads the store
//  2. a writer writes a fact to the store, and to the cache, which does not hold the job
//  3. the reader fills the cache with what it read in 1, as the whole job
//
// and the fact of 2 would be hidden until the cache forgets the job. So a reading begins a fill
// before it reads, a writer notes its facts with the fills of the job that are under way, after
// they are in the store, and commit merges what was noted into what was read.
type fills struct {
	cache  Cache
	seed   maphash.Seed
	shards [64]fillShard
}

type fillShard struct {
	mu   sync.Mutex // guards jobs, and facts of the fills in it; held over calls of the cache
	jobs map[job.JID][]*fill
}

type fill struct {
	jid     job.JID
	owner   *fills
	returns bool       // returns are wanted too, not the head alone
	facts   []job.Fact // noted since begin
	bytes   int        // of facts
	over    bool       // more was noted than a fill keeps: facts is not all
	doubt   bool       // what the cache may hold is not known: nothing is to be filled
	stale   bool       // others wrote meanwhile: it is filled for when no tier can be asked
}

// maxNoted bounds the memory of a fill whose reading takes long while a large job comes in.
const maxNoted = 16 << 20

// errOvertaken is returned for a reading during which more was written to its job than is noted.
var errOvertaken = errors.New("more was written to the job than was noted while it was read")

func newFills(cache Cache) *fills {
	f := &fills{cache: cache, seed: maphash.MakeSeed()}
	for i := range f.shards {
		f.shards[i].jobs = make(map[job.JID][]*fill)
	}
	return f
}

func (fs *fills) shard(jid job.JID) *fillShard {
	return &fs.shards[maphash.String(fs.seed, string(jid))%uint64(len(fs.shards))]
}

// begin starts a fill, of a head alone or with returns. It must be ended by commit, amend or cancel.
func (fs *fills) begin(jid job.JID, returns bool) *fill {
	f := &fill{jid: jid, owner: fs, returns: returns}
	s := fs.shard(jid)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.jobs[jid] = append(s.jobs[jid], f)
	return f
}

// note gives a fact that is in the store to the cache and to the fills under way.
func (fs *fills) note(ctx context.Context, f job.Fact) {
	jid := f.Job()
	s := fs.shard(jid)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, open := range s.jobs[jid] {
		open.add(f)
	}
	if l, isLoad := f.(job.Load); isLoad && l.Rank > job.RankReturn {
		// It may change how long the job is kept, which only a fill tells the cache. Loads that come
		// with returns may not: there are as many of them as returns, and they all say the same.
		_ = fs.cache.Evict(context.WithoutCancel(ctx), jid)
		return
	}
	if _, err := fs.cache.Merge(ctx, []job.Fact{f}); err != nil {
		// A cache that could not take a fact must not be asked for its job.
		_ = fs.cache.Evict(context.WithoutCancel(ctx), jid)
	}
}

// forget takes a job out of the cache, and keeps the fills of it under way from filling.
func (fs *fills) forget(ctx context.Context, jid job.JID) {
	s := fs.shard(jid)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, open := range s.jobs[jid] {
		open.doubt = true
	}
	_ = fs.cache.Evict(context.WithoutCancel(ctx), jid)
}

// doubt keeps a job in the cache, and what fills of it under way find, for when no tier can be asked.
func (fs *fills) doubt(jid job.JID) {
	s := fs.shard(jid)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, open := range s.jobs[jid] {
		open.stale = true
	}
	fs.cache.Doubt(jid)
}

// doubtAll is doubt of every job.
func (fs *fills) doubtAll() {
	for i := range fs.shards {
		s := &fs.shards[i]
		s.mu.Lock()
		for _, open := range s.jobs {
			for _, f := range open {
				f.stale = true
			}
		}
		s.mu.Unlock()
	}
	fs.cache.DoubtAll()
}

func (f *fill) add(fact job.Fact) {
	if _, isReturn := fact.(job.Return); f.over || isReturn && !f.returns {
		return
	}
	f.bytes += fact.Size()
	if f.bytes > maxNoted {
		f.over, f.facts = true, nil
		return
	}
	f.facts = append(f.facts, fact)
}

// cancel ends a fill without filling.
func (f *fill) cancel() {
	s := f.owner.shard(f.jid)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(f)
}

// commit merges what was noted into the snapshot, fills the cache with it and gives it.
func (f *fill) commit(
	snap tiers.Snapshot, ttl func(job.Head, bool) (ttl, fresh time.Duration),
) (tiers.Snapshot, error) {
	s := f.owner.shard(f.jid)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(f)
	if f.over {
		return tiers.Snapshot{}, errOvertaken
	}
	if len(f.facts) > 0 {
		snap = with(snap, f.facts)
		snap.TTL, snap.Fresh = ttl(snap.Head, sealed(snap))
	}
	if f.doubt || snap.TTL < 0 || f.stale && snap.Absent {
		return snap, nil
	}
	filled := snap
	if f.stale {
		filled.Fresh = -1
	}
	// The cache may decline; it is in the process and has no other way to fail.
	_ = f.owner.cache.Fill(context.Background(), filled)
	return snap, nil
}

// amend ends the fill of a job that is too large to be filled: what was noted is merged into its
// first page, as far as it belongs there. What comes after is read with the pages to come.
func (f *fill) amend(firstPage tiers.Snapshot) (tiers.Snapshot, error) {
	s := f.owner.shard(f.jid)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(f)
	if f.over {
		return tiers.Snapshot{}, errOvertaken
	}
	last := firstPage.Returns[len(firstPage.Returns)-1].Minion
	beyond := func(fact job.Fact) bool {
		r, isReturn := fact.(job.Return)
		return !isReturn || r.Minion > last
	}
	return with(firstPage, slices.DeleteFunc(f.facts, beyond)), nil
}

func (s *fillShard) remove(f *fill) {
	open := s.jobs[f.jid]
	open = slices.DeleteFunc(open, func(o *fill) bool { return o == f })
	if len(open) == 0 {
		delete(s.jobs, f.jid)
		return
	}
	s.jobs[f.jid] = open
}

// with merges facts into a snapshot. A job of which the store knew nothing is, with the facts
// noted since, known as a whole.
func with(s tiers.Snapshot, facts []job.Fact) tiers.Snapshot {
	s.Absent = false
	returns := slices.Clone(s.Returns)
	for _, f := range facts {
		r, isReturn := f.(job.Return)
		if !isReturn {
			s.Head = s.Head.With(f)
			continue
		}
		returns = withReturn(returns, r)
	}
	s.Returns = returns
	return s
}

// withReturn merges a return into returns sorted by minion, which it may change.
func withReturn(returns []job.Return, r job.Return) []job.Return {
	i, there := slices.BinarySearchFunc(returns, r.Minion, func(have job.Return, m job.Minion) int {
		return cmp.Compare(have.Minion, m)
	})
	if there {
		returns[i], _ = job.MergeReturn(returns[i], r)
		return returns
	}
	return slices.Insert(returns, i, r)
}

// backfiller fills the shared tiers in the background. Its queue is bounded and drops: a slow tier
// never holds up a read.
type backfiller struct {
	p    *Proxy
	jobs chan backfill
}

type backfill struct {
	tier     int
	snapshot tiers.Snapshot
}

const (
	// backfillQueue is small: a fill is worth doing only while the job is being read.
	backfillQueue   = 256
	backfillWorkers = 2
)

func newBackfiller(p *Proxy) *backfiller {
	b := &backfiller{p: p, jobs: make(chan backfill, backfillQueue)}
	if len(p.o.Shared) == 0 {
		return b
	}
	for range backfillWorkers {
		p.loops.Go(b.work)
	}
	return b
}

// enqueue fills every shared tier that missed and gave a lease for it.
func (b *backfiller) enqueue(found interface{ missedBy() []lease }, s tiers.Snapshot) {
	if s.Absent {
		return
	}
	// Others read the shared tiers too, and another proxy may have lost them while it writes.
	s.TTL, s.Fresh = policy.TTL(s.TTL, s.Fresh, s.Fresh == 0), 0
	for _, l := range found.missedBy() {
		s.Lease = l.token
		select {
		case b.jobs <- backfill{tier: l.tier, snapshot: s}:
		default:
			b.p.Stats.BackfillDropped.Add(1)
		}
	}
}

func (f found[T]) missedBy() []lease { return f.leases }

func (b *backfiller) work() {
	for {
		select {
		case <-b.p.ctx.Done():
			return
		case j := <-b.jobs:
			filler, ok := b.p.lower[j.tier].(tiers.Filler)
			if !ok {
				continue
			}
			ctx, cancel := context.WithTimeout(b.p.ctx, b.p.o.WriteBudget)
			// A fill that fails leaves the tier without the job, which the next read finds out.
			_ = filler.Fill(ctx, j.snapshot)
			cancel()
		}
	}
}
