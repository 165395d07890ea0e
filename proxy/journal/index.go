package journal

import (
	"cmp"
	"sync"
	"time"

	"saltern/job"
)

// index knows which entries of the log have facts of a job that the store has not confirmed. Where
// one of two pending facts loses the merge for certain, only the winner is in it.
type index struct {
	mu   sync.Mutex // guards the rest
	jobs map[job.JID]*pendingJob
	// stored are jobs of which the store confirmed a fact, in two generations, the younger first:
	// all of them since the time since.
	stored [2]map[job.JID]struct{}
	turned time.Time // when the younger generation began
	since  time.Time
}

// generation is how many jobs a generation of stored has.
const generation = 50_000

// pendingJob is what waits of one job.
type pendingJob struct {
	facts   int // pending facts, also those that lost
	load    slot[loadOrder]
	endTime slot[job.Version]
	noCache *entry
	minions []*entry
	returns map[job.Minion]slot[job.Version]
}

// slot is the entry with the fact that wins, and by what.
type slot[O any] struct {
	in    *entry
	order O
}

// loadOrder is by what loads win: see job.MergeLoad.
type loadOrder struct {
	rank    job.Rank
	version job.Version
}

func (a loadOrder) compare(b loadOrder) int {
	return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.version, b.version))
}

// init begins an index that knows of all that was confirmed after since.
func (x *index) init(since time.Time) {
	x.jobs = make(map[job.JID]*pendingJob)
	x.stored = [2]map[job.JID]struct{}{{}, {}}
	x.since, x.turned = since, since
}

// add notes the facts of an entry.
func (x *index) add(e *entry, facts []job.Fact) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, f := range facts {
		jid := f.Job()
		if jid == "" {
			continue
		}
		j := x.jobs[jid]
		if j == nil {
			j = &pendingJob{}
			x.jobs[jid] = j
		}
		j.add(e, f)
	}
}

func (j *pendingJob) add(e *entry, f job.Fact) {
	j.facts++
	switch f := f.(type) {
	case job.Load:
		order := loadOrder{f.Rank, f.Version}
		if j.load.in == nil || order.compare(j.load.order) > 0 {
			j.load = slot[loadOrder]{e, order}
		}
	case job.EndTime:
		if j.endTime.in == nil || f.Version > j.endTime.order {
			j.endTime = slot[job.Version]{e, f.Version}
		}
	case job.NoCache:
		if j.noCache == nil {
			j.noCache = e
		}
	case job.Minions:
		j.minions = append(j.minions, e)
	case job.Return:
		if j.returns == nil {
			j.returns = make(map[job.Minion]slot[job.Version])
		}
		if s, is := j.returns[f.Minion]; !is || f.Version < s.order {
			j.returns[f.Minion] = slot[job.Version]{e, f.Version}
		}
	}
}

// remove forgets the facts of an entry that the store has now.
func (x *index) remove(e *entry, facts []job.Fact, now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, f := range facts {
		j := x.jobs[f.Job()]
		if j == nil {
			continue
		}
		if j.remove(e, f); j.facts == 0 {
			delete(x.jobs, f.Job())
		}
		x.noteStored(f.Job(), now)
	}
}

func (x *index) noteStored(jid job.JID, now time.Time) {
	if len(x.stored[0]) >= generation {
		x.stored = [2]map[job.JID]struct{}{{}, x.stored[0]}
		x.since, x.turned = x.turned, now
	}
	x.stored[0][jid] = struct{}{}
}

// whole says whether what is pending of a job is all that this proxy ever knew of it: its publish
// is pending, and the store has not confirmed a fact of it.
func (x *index) whole(jid job.JID, j *pendingJob) bool {
	born, own := jid.Time()
	_, young := x.stored[0][jid]
	_, old := x.stored[1][jid]
	return j.load.in != nil && j.load.order.rank == job.RankPublish && own && !born.Before(x.since) && !young && !old
}

func (j *pendingJob) remove(e *entry, f job.Fact) {
	j.facts--
	switch f := f.(type) {
	case job.Load:
		if j.load.in == e {
			j.load = slot[loadOrder]{}
		}
	case job.EndTime:
		if j.endTime.in == e {
			j.endTime = slot[job.Version]{}
		}
	case job.NoCache:
		if j.noCache == e {
			j.noCache = nil
		}
	case job.Minions:
		for i, m := range j.minions {
			if m == e {
				j.minions = append(j.minions[:i:i], j.minions[i+1:]...)
				break
			}
		}
	case job.Return:
		if j.returns[f.Minion].in == e {
			delete(j.returns, f.Minion)
		}
	}
}

// pendingHead are the entries with the pending facts of a job's head, and whether they are the
// whole job; none when nothing is pending.
func (x *index) pendingHead(jid job.JID) (in []*entry, whole, pending bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	j := x.jobs[jid]
	if j == nil {
		return nil, false, false
	}
	for _, e := range []*entry{j.load.in, j.endTime.in, j.noCache} {
		if e != nil {
			in = append(in, e)
		}
	}
	return append(in, j.minions...), x.whole(jid, j), true
}

// pendingReturns are the entries with pending returns of a job, by minion.
func (x *index) pendingReturns(
	jid job.JID, wanted func(job.Minion) bool,
) (in map[job.Minion]*entry, whole, pending bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	j := x.jobs[jid]
	if j == nil {
		return nil, false, false
	}
	in = make(map[job.Minion]*entry, len(j.returns))
	for m, s := range j.returns {
		if wanted(m) {
			in[m] = s.in
		}
	}
	return in, x.whole(jid, j), true
}

// pending is how many facts of a job wait.
func (x *index) pending(jid job.JID) int {
	x.mu.Lock()
	defer x.mu.Unlock()
	if j := x.jobs[jid]; j != nil {
		return j.facts
	}
	return 0
}
