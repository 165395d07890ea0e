package job

import (
	"slices"
	"time"
)

// Head is all that is known of a job but its returns. Everything in it may be absent: a job can be
// known by a list of minions, or by a return, alone.
type Head struct {
	JID JID
	// Load is nil where no load came yet.
	Load *Load
	// Minions are those that the job was sent to, sorted, each once.
	Minions []Minion
	EndTime *EndTime
	NoCache *NoCache
}

// MergeHead gives the head that two of one job make, by the rules of their facts. Neither argument
// is changed.
func MergeHead(a, b Head) Head {
	return Head{
		JID:     a.JID,
		Load:    mergePtr(a.Load, b.Load, MergeLoad),
		Minions: UnionMinions(a.Minions, b.Minions),
		EndTime: mergePtr(a.EndTime, b.EndTime, MergeEndTime),
		NoCache: mergePtr(a.NoCache, b.NoCache, MergeNoCache),
	}
}

func mergePtr[T any](a, b *T, merge func(T, T) T) *T {
	if a == nil {
		return b
	}
	if b == nil {
		return a
	}
	m := merge(*a, *b)
	return &m
}

// With gives the head with a fact merged into it. Facts that are no part of a head (returns,
// events) leave it as it is. The receiver is not changed.
func (h Head) With(f Fact) Head {
	switch f := f.(type) {
	case Load:
		h.Load = mergePtr(h.Load, &f, MergeLoad)
	case Minions:
		h.Minions = UnionMinions(h.Minions, f.IDs)
	case EndTime:
		h.EndTime = mergePtr(h.EndTime, &f, MergeEndTime)
	case NoCache:
		h.NoCache = mergePtr(h.NoCache, &f, MergeNoCache)
	}
	return h
}

// Size is about how many bytes the head takes in memory.
func (h Head) Size() int {
	n := factOverhead + len(h.JID)
	if h.Load != nil {
		n += h.Load.Size()
	}
	for _, m := range h.Minions {
		n += len(m) + 16
	}
	if h.EndTime != nil {
		n += h.EndTime.Size()
	}
	return n
}

// Sealed says whether every minion that the job was sent to has returned. It is a hint for caches,
// not a promise: the next chunk of a batch, or a syndic's minions, makes a job unsealed again.
// returned are the minions that have, in any order.
func (h Head) Sealed(returned []Minion) bool {
	if h.Load == nil || len(h.Minions) == 0 || len(returned) < len(h.Minions) {
		return false
	}
	sorted := UnionMinions(returned)
	for _, m := range h.Minions {
		if _, found := slices.BinarySearch(sorted, m); !found {
			return false
		}
	}
	return true
}

// State is what a person calls the state of a job.
type State string

const (
	// Running: minions are missing, and the last fact is younger than RunningFor.
	Running State = "running"
	// Complete: all minions that the job was sent to have returned, none with a failure.
	Complete State = "complete"
	// Failed: at least one return is a failure, whether or not minions are missing.
	Failed State = "failed"
	// Incomplete: minions are missing and nothing came for RunningFor.
	Incomplete State = "incomplete"
)

// RunningFor is how long after its last fact a job with missing minions counts as running. (Salt
// itself asks minions with find_job; the store can only look at the time.)
const RunningFor = 15 * time.Minute

// Summary is a job as lists show it.
type Summary struct {
	JID JID
	// Time orders jobs and starts their age: see JID.PlausibleTime.
	Time       time.Time
	Fun        string
	Target     string
	TargetType string
	User       string
	Master     string
	Keep       Keep
	// Expected is the number of minions that the job was sent to, Missing how many of them have
	// not returned, Returned the number of returns (of expected minions or not), Failed how many
	// of those are failures.
	Expected int
	Missing  int
	Returned int
	Failed   int
	// Last is when the last fact came.
	Last time.Time
}

// State is the state of the job at the time now.
func (s Summary) State(now time.Time) State {
	switch {
	case s.Failed > 0:
		return Failed
	case s.Missing == 0 && s.Returned > 0:
		return Complete
	case now.Sub(s.Last) < RunningFor:
		return Running
	default:
		return Incomplete
	}
}
