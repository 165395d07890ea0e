package proxy

import (
	"errors"
	"sync/atomic"

	"saltern/telemetry"
	"saltern/tiers"
)

// Answer is what became of asking one tier.
type Answer = telemetry.Answer

// The answers of a tier.
const (
	Hit      = telemetry.Hit
	Miss     = telemetry.Miss
	Absent   = telemetry.Absent
	Failed   = telemetry.Failed
	Opened   = telemetry.Opened
	TimedOut = telemetry.TimedOut
	Skipped  = telemetry.Skipped
)

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

// answerCounts are counts by operation and answer.
type answerCounts [telemetry.Ops][telemetry.Answers]atomic.Uint64

// Stats counts what the proxy did since it was opened.
type Stats struct {
	names []string
	reads []answerCounts // by tier, the cache first

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
	s.reads = make([]answerCounts, len(s.names))
}

// count counts an answer of a tier: 0 is the cache, i+1 the lower tier i.
func (s *Stats) count(tier int, op telemetry.Op, a Answer) { s.reads[tier][op][a].Add(1) }

// Each calls f for every tier, operation and answer that there was, with its count.
func (s *Stats) Each(f func(tier string, op telemetry.Op, a Answer, n uint64)) {
	for i := range s.reads {
		for op := range telemetry.Ops {
			for a := range telemetry.Answers {
				if n := s.reads[i][op][a].Load(); n > 0 {
					f(s.names[i], op, a, n)
				}
			}
		}
	}
}

// Reads calls f for every tier and answer of reads of a job with its count.
func (s *Stats) Reads(f func(tier string, a Answer, n uint64)) {
	for i := range s.reads {
		for a := range telemetry.Answers {
			f(s.names[i], a, s.reads[i][telemetry.Head][a].Load()+s.reads[i][telemetry.Returns][a].Load())
		}
	}
}
