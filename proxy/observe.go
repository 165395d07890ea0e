package proxy

import (
	"context"
	"errors"
	"time"

	"saltern/job"
	"saltern/policy"
	"saltern/telemetry"
	"saltern/tiers"
)

// asked counts what the cache answered, and gives the answer back. start is 0 where the read was not
// timed. Misses are told with the rest of their lookup.
func (p *Proxy) asked(ctx context.Context, op telemetry.Op, jid job.JID, a Answer, start time.Duration) Answer {
	p.Stats.count(0, op, a)
	var took time.Duration
	if start != 0 {
		took = telemetry.Now() - start
		p.o.Metrics.Tier(p.Stats.names[0], op, took)
	}
	if a == Hit || a == Absent {
		telemetry.CallOf(ctx).AddHit(op, string(jid), a, start, took)
	}
	return a
}

// lookup begins a lookup that goes below the cache.
func lookup(op telemetry.Op, jid job.JID, memory Answer) *telemetry.Lookup {
	return &telemetry.Lookup{Op: op, JID: string(jid), Memory: memory, Start: telemetry.Now()}
}

// looked ends a lookup.
func (p *Proxy) looked(ctx context.Context, l *telemetry.Lookup, err error) {
	l.Took = telemetry.Now() - l.Start
	switch {
	case err == nil:
		l.Answer = Hit
	case errors.Is(err, tiers.ErrNotFound):
		l.Answer = Absent
	default:
		l.Answer = answerOf(err)
	}
	p.o.Metrics.Lookup(l)
	telemetry.CallOf(ctx).Add(l)
}

// tierAsked counts and notes what the lower tier i answered to a question of the time start.
func (p *Proxy) tierAsked(steps *telemetry.Steps, i int, op telemetry.Op, a Answer, start time.Duration) {
	p.Stats.count(i+1, op, a)
	s := telemetry.Step{Tier: p.Stats.names[i+1], Answer: a, Start: start, Took: telemetry.Now() - start}
	if a != Skipped && a != Opened {
		p.o.Metrics.Tier(s.Tier, op, s.Took)
	}
	if b, guarded := p.lower[i].(guardedTier); guarded {
		s.Breaker = breakerOf(b, op).String()
	}
	steps.Add(s)
}

// guardedTier is a tier that has breakers.
type guardedTier interface {
	States() (read, write, list policy.BreakerState)
}

func breakerOf(g guardedTier, op telemetry.Op) policy.BreakerState {
	read, write, list := g.States()
	switch op {
	case telemetry.Write:
		return write
	case telemetry.List, telemetry.Events, telemetry.Minions:
		return list
	default:
		return read
	}
}

// countReturns counts the returns that a write stored.
func (p *Proxy) countReturns(facts []job.Fact, outcomes []job.Outcome) {
	if p.o.Metrics == nil {
		return
	}
	for i, f := range facts {
		r, is := f.(job.Return)
		if is && (outcomes[i] == job.Stored || outcomes[i] == job.Created) {
			p.o.Metrics.Return(r.Fun, r.Failed)
		}
	}
}
