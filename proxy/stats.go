package proxy

import (
	"errors"
	"sync/atomic"

	"saltern/tiers"
)

// Answer is what became of asking one tier.
type Answer uint8

// The answers of a tier, each its own: a miss is no error, and a tier that was not asked did not
// miss.
const (
	Hit Answer = iota
	Miss
	Absent
	Failed
	Opened
	TimedOut
	Skipped
	answers
)

var answerNames = [...]string{"hit", "miss", "absent", "error", "open", "timeout", "skipped"}

// String is the word for the answer in metrics and traces.
func (a Answer) String() string { return answerNames[a] }

// answerOf tells the answers apart by the error of a tier.
func answerOf(err error) Answer {
	switch {
	case err == nil:
		return Hit
	case errors.Is(err, tiers.ErrNotFound):
		return Miss
	case errors.Is(err, tiers.ErrAbsent):
		return Absent
	case errors.Is(err, tiers.ErrOpen):
		return Opened
	case errors.Is(err, tiers.ErrTimeout):
		return TimedOut
	default:
		return Failed
	}
}

// Stats counts what the proxy did since it was opened.
type Stats struct {
	names []string
	reads [][answers]atomic.Uint64 // by tier, the cache first

	Coalesced       atomic.Uint64 // reads that joined a flight
	BackfillDropped atomic.Uint64 // fills of a shared tier that found the queue full
	Stale           atomic.Uint64 // reads answered with what may be old, as no tier could be asked
	Writes          atomic.Uint64 // calls of Write that were acknowledged
	WriteErrors     atomic.Uint64 // calls of Write that failed
	LocalJIDs       atomic.Uint64 // jids of which no shared tier nor the store could say that nobody has them
	MissedFacts     atomic.Uint64 // facts that a shared tier did not get
}

func (s *Stats) init(cache tiers.Tier, lower []tiers.Tier) {
	s.names = append(s.names, cache.Name())
	for _, t := range lower {
		s.names = append(s.names, t.Name())
	}
	s.reads = make([][answers]atomic.Uint64, len(s.names))
}

// count counts an answer of a tier: 0 is the cache, i+1 the lower tier i.
func (s *Stats) count(tier int, a Answer) { s.reads[tier][a].Add(1) }

// Reads calls f for every tier and answer with its count.
func (s *Stats) Reads(f func(tier string, a Answer, n uint64)) {
	for i := range s.reads {
		for a := range answers {
			f(s.names[i], a, s.reads[i][a].Load())
		}
	}
}
