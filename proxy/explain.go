package proxy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"saltern/job"
	"saltern/telemetry"
	"saltern/tiers"
)

// Explained is what one tier says of a job.
type Explained struct {
	Tier   string
	Answer Answer // Hit: it holds it; Miss; Absent: it says that there is none; or why it could not be asked
	Err    error  // set where it could not be asked
	tiers.Peek
	Took time.Duration
	// Read, Write and List are the states of its breakers, empty where it has none.
	Read, Write, List string
	// Behind: it may lack what was written, and is not asked for this job.
	Behind bool
	// Pending is how many facts of the job wait for it in the journal; -1 where there is no journal.
	Pending int
}

// Explain asks each tier what it holds of a job, beside each other and without going on from one to the
// next. It changes nothing: no tier is filled, and no cache keeps the job for longer.
func (p *Proxy) Explain(ctx context.Context, jid job.JID) ([]Explained, error) {
	if !p.gate.enter() {
		return nil, ErrClosed
	}
	defer p.gate.leave()
	ctx, stop := p.within(ctx)
	defer stop()
	all := append([]tiers.Tier{p.o.Cache}, p.lower...)
	out := make([]Explained, len(all))
	for i, t := range all {
		e := Explained{Tier: t.Name(), Pending: -1}
		start := telemetry.Now()
		if i == len(all)-1 {
			e.Peek, e.Err = peekStore(ctx, t, jid)
		} else {
			e.Peek, e.Err = peek(ctx, t, jid)
			if i > 0 {
				e.Behind = p.lags[i-1].behind(jid)
			}
		}
		e.Took = telemetry.Now() - start
		e.Answer = peeked(e.Peek, e.Err)
		if g, guarded := t.(guardedTier); guarded {
			read, write, list := g.States()
			e.Read, e.Write, e.List = read.String(), write.String(), list.String()
		}
		if j, has := t.(interface{ Pending(job.JID) int }); has {
			e.Pending = j.Pending(jid)
		}
		out[i] = e
	}
	return out, nil
}

func peeked(p tiers.Peek, err error) Answer {
	switch {
	case err != nil:
		return answerOf(err)
	case p.Absent:
		return Absent
	case p.Held:
		return Hit
	}
	return Miss
}

func peek(ctx context.Context, t tiers.Tier, jid job.JID) (tiers.Peek, error) {
	if p, can := t.(tiers.Peeker); can {
		return p.Peek(ctx, jid)
	}
	return tiers.Peek{}, fmt.Errorf("%w: %s cannot be looked into", tiers.ErrInvalid, t.Name())
}

// peekStore reads the head: a read changes nothing in a store.
func peekStore(ctx context.Context, t tiers.Tier, jid job.JID) (tiers.Peek, error) {
	h, err := t.Head(ctx, jid)
	if errors.Is(err, tiers.ErrNotFound) {
		return tiers.Peek{Absent: true}, nil
	}
	if err != nil {
		return tiers.Peek{}, err
	}
	p := tiers.Peek{Held: true, Returns: -1}
	if h.Load != nil {
		p.Version, p.Bytes = h.Load.Version, int64(h.Load.Size())
	}
	return p, nil
}

var _ tiers.Peeker = (*Guarded)(nil)

// Peek is a guarded read.
func (g *Guarded) Peek(ctx context.Context, jid job.JID) (tiers.Peek, error) {
	return guard(ctx, g, g.read, func(ctx context.Context) (tiers.Peek, error) {
		return peek(ctx, g.under, jid)
	})
}
