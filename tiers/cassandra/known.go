package cassandra

import (
	"slices"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"

	"saltern/job"
)

// generations is a map that forgets: of between n and 2n keys, the ones longest untouched.
type generations[K comparable, V any] struct {
	n     int
	mu    sync.Mutex // guards the rest
	young map[K]V
	old   map[K]V
}

func newGenerations[K comparable, V any](n int) *generations[K, V] {
	return &generations[K, V]{n: n, young: make(map[K]V)}
}

func (g *generations[K, V]) get(key K) (V, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.getLocked(key)
}

func (g *generations[K, V]) getLocked(key K) (V, bool) {
	if v, ok := g.young[key]; ok {
		return v, true
	}
	v, ok := g.old[key]
	if ok {
		g.putLocked(key, v)
	}
	return v, ok
}

func (g *generations[K, V]) put(key K, v V) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.putLocked(key, v)
}

func (g *generations[K, V]) putLocked(key K, v V) {
	if len(g.young) >= g.n {
		g.old, g.young = g.young, make(map[K]V, g.n/4)
	}
	g.young[key] = v
}

// knownJob is what this process knows of a job: a hint that saves rows, and says where they go. Everything in
// it was acknowledged by Cassandra, but for returns.
type knownJob struct {
	mu sync.Mutex // guards the rest
	// at is the time of the job; zero until it is known.
	at time.Time
	// keep is the longest that a fact named, loadKeep what its load of rank loadRank named.
	keep, loadKeep job.Keep
	loadRank       job.Rank
	// rank is the highest of the loads that are stored.
	rank job.Rank
	// born says that the row of its birth is stored, of the class bornClass.
	born      bool
	bornClass int
	// changed is when its row in the list was last marked as changed, of the class changedClass.
	changed      time.Time
	changedClass int
	// returns is how many returns this process has written, marked the last bucket that readers know of.
	returns int
	marked  int32
	noCache bool
	// listed are the hashes of the minions that it was sent to and that have their rows in jobs_by_minion of the class
	// listedClass, sorted. They are few enough to be kept: see maxListed.
	listed      []uint64
	listedClass int
}

// maxListed bounds the minions of one job that are remembered: 500 kB.
const maxListed = 65_536

// list remembers that minions have their rows. The caller holds mu.
func (j *knownJob) list(hashes []uint64, class int) {
	if len(hashes)+len(j.listed) > maxListed {
		return
	}
	if j.listedClass != class {
		j.listed, j.listedClass = nil, class
	}
	j.listed = slices.Compact(slices.Sorted(slices.Values(append(j.listed, hashes...))))
}

// lists says whether a minion has its row. The caller holds mu.
func (j *knownJob) lists(id job.Minion, class int) bool {
	if j.listedClass != class {
		return false
	}
	_, found := slices.BinarySearch(j.listed, xxhash.Sum64String(string(id)))
	return found
}

// known are the jobs that this process wrote to lately.
type known struct {
	jobs *generations[job.JID, *knownJob]
}

// knownJobs is a generation: 100,000 jobs at most, some 20 MB.
const knownJobs = 50_000

func newKnown() *known { return &known{jobs: newGenerations[job.JID, *knownJob](knownJobs)} }

func (k *known) job(jid job.JID) *knownJob {
	k.jobs.mu.Lock()
	defer k.jobs.mu.Unlock()
	j, ok := k.jobs.getLocked(jid)
	if !ok {
		j = &knownJob{keep: job.KeepUnset, loadKeep: job.KeepUnset}
		k.jobs.putLocked(jid, j)
	}
	return j
}

// learn takes what a fact says about how long the job is kept.
func (j *knownJob) learn(f job.Fact) {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch f := f.(type) {
	case job.Load:
		j.keep = job.LongerKeep(j.keep, f.Keep)
		if f.Rank >= j.loadRank && f.Keep >= 0 {
			j.loadKeep, j.loadRank = f.Keep, f.Rank
		}
	case job.Minions:
		j.keep = job.LongerKeep(j.keep, f.Keep)
	case job.Return:
		j.keep = job.LongerKeep(j.keep, f.Keep)
	case job.EndTime:
		j.keep = job.LongerKeep(j.keep, f.Keep)
	case job.NoCache:
		j.keep = job.LongerKeep(j.keep, f.Keep)
	}
}

// kept is how long the job is kept: as its load says, else as long as any fact says. The caller holds mu.
func (j *knownJob) kept() job.Keep {
	if j.loadKeep >= 0 {
		return j.loadKeep
	}
	return j.keep
}
