package proxy

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"saltern/job"
	"saltern/telemetry"
	"saltern/tiers"
)

// Head gives all that is known of a job but its returns. tiers.ErrNotFound means that there is no
// such job; any other error, that it could not be told.
func (p *Proxy) Head(ctx context.Context, jid job.JID) (job.Head, error) {
	if !p.gate.enter() {
		return job.Head{}, ErrClosed
	}
	defer p.gate.leave()
	timed := telemetry.SampleStart()
	h, err := p.o.Cache.Head(ctx, jid)
	switch p.asked(ctx, telemetry.Head, jid, answerOf(err), timed) {
	case Hit:
		return h, nil
	case Absent:
		return job.Head{}, tiers.ErrNotFound
	}
	l := lookup(telemetry.Head, jid, Miss)
	h, err = p.heads.do(ctx, p, string(jid), l, func(ctx context.Context, landed func()) (job.Head, error) {
		return p.readHead(ctx, jid, landed)
	})
	if err != nil {
		h, err = orStale(p, l, err, func() (job.Head, error) { return p.o.Cache.StaleHead(ctx, jid) })
	}
	if h.Load != nil {
		l.Version = uint64(h.Load.Version)
	}
	p.looked(ctx, l, err)
	return h, err
}

// readHead reads a head from the tiers under the cache and fills those above the one that had it.
func (p *Proxy) readHead(ctx context.Context, jid job.JID, landed func()) (job.Head, error) {
	f := p.fills.begin(jid, false)
	found, err := p.askHead(ctx, jid)
	landed()
	s, err := p.land(f, tiers.Snapshot{Head: found.value}, err)
	if errors.Is(err, errOvertaken) {
		// All that was noted is in the store, and in what is read from now on.
		found, err = p.askHead(ctx, jid)
		return found.value, err
	}
	if err != nil {
		return job.Head{}, err
	}
	p.backs.enqueue(found, s)
	return s.Head, nil
}

func (p *Proxy) askHead(ctx context.Context, jid job.JID) (found[job.Head], error) {
	return cascade(ctx, p, telemetry.Head, jid, func(ctx context.Context, t tiers.Tier) (job.Head, error) {
		return t.Head(ctx, jid)
	})
}

// Returns gives a page of a job's returns. Errors are as for Head.
func (p *Proxy) Returns(ctx context.Context, jid job.JID, q tiers.ReturnQuery) (tiers.ReturnPage, error) {
	if !p.gate.enter() {
		return tiers.ReturnPage{}, ErrClosed
	}
	defer p.gate.leave()
	timed := telemetry.SampleStart()
	page, err := p.o.Cache.Returns(ctx, jid, q)
	switch p.asked(ctx, telemetry.Returns, jid, answerOf(err), timed) {
	case Hit:
		return page, nil
	case Absent:
		return tiers.ReturnPage{}, tiers.ErrNotFound
	}
	l := lookup(telemetry.Returns, jid, Miss)
	page, err = p.readReturns(ctx, jid, q, l)
	if err != nil {
		page, err = orStale(p, l, err, func() (tiers.ReturnPage, error) { return p.o.Cache.StaleReturns(ctx, jid, q) })
	}
	p.looked(ctx, l, err)
	return page, err
}

// readReturns reads returns from the tiers under the cache.
func (p *Proxy) readReturns(
	ctx context.Context, jid job.JID, q tiers.ReturnQuery, l *telemetry.Lookup,
) (tiers.ReturnPage, error) {
	if q.After != "" || q.Only != nil || q.NoPayload {
		return p.readPage(telemetry.WithSteps(ctx, &l.Steps), jid, q)
	}
	s, err := p.jobs.do(ctx, p, string(jid), l, func(ctx context.Context, landed func()) (tiers.Snapshot, error) {
		return p.readJob(ctx, jid, landed)
	})
	if err != nil {
		return tiers.ReturnPage{}, err
	}
	return cut(s, q.MaxBytes), nil
}

// readPage reads a part of a job's returns from the tiers under the cache. A part fills nothing.
func (p *Proxy) readPage(ctx context.Context, jid job.JID, q tiers.ReturnQuery) (tiers.ReturnPage, error) {
	ctx, stop := p.within(ctx)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, p.o.ReadBudget)
	defer cancel()
	found, err := cascade(ctx, p, telemetry.Returns, jid, func(ctx context.Context, t tiers.Tier) (tiers.ReturnPage, error) {
		return t.Returns(ctx, jid, q)
	})
	return found.value, err
}

// readJob reads a job as a whole, if it is not too large for that, and fills the tiers above the
// one that had it. A snapshot without HasReturns has the first page of a larger job; it is not
// filled.
func (p *Proxy) readJob(ctx context.Context, jid job.JID, landed func()) (tiers.Snapshot, error) {
	f := p.fills.begin(jid, true)
	found, err := p.askJob(ctx, jid)
	landed()
	s, err := p.landJob(f, found, err)
	if errors.Is(err, errOvertaken) {
		// All that was noted is in the store, and in what is read from now on.
		found, err = p.askJob(ctx, jid)
		return found.value, err
	}
	if err == nil && s.HasReturns {
		p.backs.enqueue(found, s)
	}
	return s, err
}

// askJob reads a job from the tiers under the cache: its head and all returns, or, without
// HasReturns, its first page alone.
func (p *Proxy) askJob(ctx context.Context, jid job.JID) (found[tiers.Snapshot], error) {
	return cascade(ctx, p, telemetry.Returns, jid, func(ctx context.Context, t tiers.Tier) (tiers.Snapshot, error) {
		page, err := t.Returns(ctx, jid, tiers.ReturnQuery{MaxBytes: p.o.FillBytes})
		if err != nil || page.Next != "" {
			return tiers.Snapshot{Returns: page.Returns}, err
		}
		h, err := t.Head(ctx, jid)
		return tiers.Snapshot{Head: h, Returns: page.Returns, HasReturns: true}, err
	})
}

func (p *Proxy) landJob(f *fill, found found[tiers.Snapshot], err error) (tiers.Snapshot, error) {
	if err == nil && !found.value.HasReturns {
		return f.amend(found.value)
	}
	return p.land(f, found.value, err)
}

// land ends a fill with what the tiers said: the snapshot, that there is no such job, or that they
// could not tell. What was written in the meantime is in the snapshot that it gives.
func (p *Proxy) land(f *fill, s tiers.Snapshot, err error) (tiers.Snapshot, error) {
	switch {
	case err == nil:
		s.Head.JID = f.jid
		s.TTL, s.Fresh = p.ttl(s.Head, sealed(s))
	case errors.Is(err, tiers.ErrNotFound):
		s = tiers.Snapshot{Head: job.Head{JID: f.jid}, HasReturns: f.returns, Absent: true, TTL: p.o.NegativeTTL}
	default:
		f.cancel()
		return tiers.Snapshot{}, err
	}
	s, err = f.commit(s, p.ttl)
	if err == nil && s.Absent {
		err = tiers.ErrNotFound
	}
	return s, err
}

func sealed(s tiers.Snapshot) bool {
	if !s.HasReturns || len(s.Returns) < len(s.Head.Minions) {
		return false
	}
	minions := make([]job.Minion, len(s.Returns))
	for i := range s.Returns {
		minions[i] = s.Returns[i].Minion
	}
	return s.Head.Sealed(minions)
}

// cut makes a page out of a snapshot.
func cut(s tiers.Snapshot, maxBytes int) tiers.ReturnPage {
	n := PageLen(s.Returns, maxBytes)
	page := tiers.ReturnPage{Returns: slices.Clip(s.Returns[:n])}
	if n > 0 && (n < len(s.Returns) || !s.HasReturns) {
		page.Next = s.Returns[n-1].Minion
	}
	return page
}

// PageLen is how many of the returns make a page of at most maxBytes; at least one.
func PageLen(returns []job.Return, maxBytes int) int {
	if maxBytes <= 0 {
		return len(returns)
	}
	bytes := 0
	for i, r := range returns {
		bytes += r.PayloadBytes()
		if bytes > maxBytes && i > 0 {
			return i
		}
	}
	return len(returns)
}

// Lists, events, minions and registers are the store's alone: no cache has all of them.

// List gives a page of jobs, newest first.
func (p *Proxy) List(ctx context.Context, f tiers.Filter) (tiers.ListPage, error) {
	return askStore(ctx, p, telemetry.List, func(ctx context.Context) (tiers.ListPage, error) {
		return p.o.Store.List(ctx, f)
	})
}

// Events gives a page of events.
func (p *Proxy) Events(ctx context.Context, q tiers.EventQuery) (tiers.EventPage, error) {
	return askStore(ctx, p, telemetry.Events, func(ctx context.Context) (tiers.EventPage, error) {
		return p.o.Store.Events(ctx, q)
	})
}

// LastFunctions gives the minions with their last functions.
func (p *Proxy) LastFunctions(ctx context.Context, fun string) ([]job.LastFunction, error) {
	return askStore(ctx, p, telemetry.Minions, func(ctx context.Context) ([]job.LastFunction, error) {
		return p.o.Store.LastFunctions(ctx, fun)
	})
}

// LoadRegister gives a Thorium register, or tiers.ErrNotFound.
func (p *Proxy) LoadRegister(ctx context.Context, master string) ([]byte, error) {
	return askStore(ctx, p, telemetry.Register, func(ctx context.Context) ([]byte, error) {
		return p.o.Store.LoadRegister(ctx, master)
	})
}

// askStore makes one read of the store.
func askStore[T any](
	ctx context.Context, p *Proxy, op telemetry.Op, ask func(context.Context) (T, error),
) (T, error) {
	if !p.gate.enter() {
		var zero T
		return zero, ErrClosed
	}
	defer p.gate.leave()
	ctx, stop := p.within(ctx)
	defer stop()
	l := lookup(op, "", Skipped)
	v, err := ask(ctx)
	if errors.Is(err, context.Canceled) {
		err = cmp.Or(context.Cause(ctx), err)
	}
	p.tierAsked(&l.Steps, len(p.lower)-1, op, answerOf(err), l.Start)
	p.looked(ctx, l, err)
	return v, err
}

// SaveRegister keeps a Thorium register. It is durable when this returns.
func (p *Proxy) SaveRegister(ctx context.Context, master string, data []byte) error {
	if !p.gate.enter() {
		return ErrClosed
	}
	defer p.gate.leave()
	return p.o.Store.SaveRegister(ctx, master, data)
}
