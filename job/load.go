package job

import (
	"bytes"
	"cmp"
)

// Rank says how much a load knows of its job. A higher rank beats a lower one whatever their
// versions: Salt calls save_load with the minion's return for every return, and that must never
// replace the target and arguments of the publish (saltstack/salt#53752).
type Rank uint8

const (
	// RankReturn is a load that has the shape of a minion's return.
	RankReturn Rank = 1
	// RankLoad is a load that came without minions: a syndic's, or salt-ssh's.
	RankLoad Rank = 2
	// RankPublish is a publish: it has a target, no return, and came with its minions.
	RankPublish Rank = 3
)

// Keep says how long a job is kept, in seconds after its time: the keep_jobs_seconds of the master
// that published it.
type Keep int64

const (
	// KeepForever is Salt's 0: the job is never removed.
	KeepForever Keep = 0
	// KeepUnset is for a fact whose sender does not know: the store's default then applies.
	KeepUnset Keep = -1
)

// LongerKeep gives the longer of two times to keep. KeepUnset is shorter than all, KeepForever longer.
func LongerKeep(a, b Keep) Keep {
	switch {
	case a < 0:
		return max(b, KeepUnset)
	case b < 0:
		return a
	case a == KeepForever || b == KeepForever:
		return KeepForever
	default:
		return max(a, b)
	}
}

// Load is the load of a job: what was asked of whom. The header repeats those parts of the payload
// that lists, filters and people read; the payload is the whole, for Salt.
type Load struct {
	JID     JID
	Version Version
	Rank    Rank
	// Fun is the function. Several functions are joined with a comma.
	Fun string
	// Target is the target as text; the elements of a list are joined with a comma.
	Target     string
	TargetType string
	User       string
	// Master is the id of the master that published the job.
	Master string
	Keep   Keep
	// Surrogates says that strings in the payload hold lone surrogates, written as Python's
	// surrogatepass does.
	Surrogates bool
	// Payload is a MessagePack map. It may be kept and is not to be changed.
	Payload []byte
}

// MergeLoad gives the load that stays of two of one job: the higher rank, then the higher version,
// as local_cache overwrites a load with the next one.
func MergeLoad(a, b Load) Load {
	if compareLoads(a, b) >= 0 {
		return a
	}
	return b
}

// compareLoads is a total order, so that merging is commutative also when two nodes gave out one
// version.
func compareLoads(a, b Load) int {
	return cmp.Or(
		cmp.Compare(a.Rank, b.Rank),
		cmp.Compare(a.Version, b.Version),
		bytes.Compare(a.Payload, b.Payload),
		cmp.Compare(a.Keep, b.Keep),
		cmp.Compare(a.Master, b.Master),
		cmp.Compare(a.User, b.User),
		cmp.Compare(a.Fun, b.Fun),
		cmp.Compare(a.Target, b.Target),
		cmp.Compare(a.TargetType, b.TargetType),
		boolCompare(a.Surrogates, b.Surrogates),
	)
}

func boolCompare(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	default:
		return -1
	}
}
