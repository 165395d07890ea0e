package server

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tinylib/msgp/msgp"

	"saltern/job"
	"saltern/tiers"
)

// importFacts stores facts of another job store, each with the time when it came there. A fact that
// is there already, in its own words or in those of Salt itself, is left as it is: what Salt gave to
// Saltern has more in it than what any other store kept of it. What slips in between the look and
// the write is settled by the merge rules: an imported load has an old version, so that a published
// one beats it.
func (s *RPC) importFacts(ctx context.Context, out []byte, p *params) ([]byte, error) {
	var facts []job.Fact
	p.array("facts", func(f *params) {
		f.tuple("fact", func() {
			if fact := f.fact(); fact != nil {
				facts = append(facts, fact)
			}
		})
	})
	if err := p.done(); err != nil {
		return out, err
	}
	missing, err := s.missing(ctx, facts)
	if err != nil {
		return out, err
	}
	dropped := 0
	if len(missing) > 0 {
		outcomes, err := s.o.Jobs.Write(ctx, missing...)
		if err != nil {
			return out, err
		}
		for _, o := range outcomes {
			if o == job.Dropped {
				dropped++
			}
		}
	}
	out = msgp.AppendMapHeader(out, 3)
	out = msgp.AppendInt(msgp.AppendString(out, "stored"), len(missing)-dropped)
	out = msgp.AppendInt(msgp.AppendString(out, "there"), len(facts)-len(missing))
	return msgp.AppendInt(msgp.AppendString(out, "dropped"), dropped), nil
}

// fact reads one fact: its kind, when it came, and what the method that stores it takes.
func (p *params) fact() job.Fact {
	kind, at := p.str("kind"), p.time("at")
	// Zero is a version that is still to be given.
	version := max(1, job.VersionAt(at))
	switch kind {
	case "load":
		l := p.loadHeader()
		l.Version, l.Payload = version, p.packedMap("load")
		return l
	case "minions":
		m := job.Minions{JID: job.JID(p.str("jid")), Version: version}
		ids, _ := p.minions("minions")
		m.IDs, m.Syndic, m.Keep = job.UnionMinions(ids), p.str("syndic"), p.keep("keep")
		return m
	case "return":
		r := p.returnHeader()
		r.Version = version
		r.Ret, r.Rest, r.Times = p.packed("return"), p.packedMap("rest"), p.packedMap("times")
		if r.Ret == nil {
			p.fail(kind, errors.New("it has no return"))
		}
		return r
	case "endtime":
		return job.EndTime{JID: job.JID(p.str("jid")), Version: version, Text: p.str("endtime"), Keep: p.keep("keep")}
	case "nocache":
		return job.NoCache{JID: job.JID(p.str("jid")), Version: version, Keep: p.keep("keep")}
	case "event":
		e := p.event(p.str("master"))
		e.Version = version
		return e
	default:
		p.fail("kind", fmt.Errorf("%q is none of load, minions, return, endtime, nocache, event", kind))
		return nil
	}
}

// missing are the facts that are not stored yet. Events are always written: a resend is the same
// event.
func (s *RPC) missing(ctx context.Context, facts []job.Fact) ([]job.Fact, error) {
	heads := make(map[job.JID]*job.Head)
	minions := make(map[job.JID][]job.Minion)
	for _, f := range facts {
		if r, is := f.(job.Return); is {
			minions[r.JID] = append(minions[r.JID], r.Minion)
		}
		if jid := f.Job(); jid != "" && heads[jid] == nil {
			h, err := s.o.Jobs.Head(ctx, jid)
			if err != nil && !errors.Is(err, tiers.ErrNotFound) {
				return nil, err
			}
			heads[jid] = &h
		}
	}
	returned := make(map[job.JID]map[job.Minion]bool, len(minions))
	for jid, ids := range minions {
		var err error
		if returned[jid], err = s.returned(ctx, jid, ids); err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(slices.Clone(facts), func(f job.Fact) bool {
		if r, is := f.(job.Return); is {
			return returned[r.JID][r.Minion]
		}
		return f.Job() != "" && has(heads[f.Job()], f)
	}), nil
}

// returned says which of the minions have a return.
func (s *RPC) returned(ctx context.Context, jid job.JID, ids []job.Minion) (map[job.Minion]bool, error) {
	there := make(map[job.Minion]bool, len(ids))
	q := tiers.ReturnQuery{Only: job.UnionMinions(ids), NoPayload: true, MaxBytes: pageBytes}
	for {
		page, err := s.o.Jobs.Returns(ctx, jid, q)
		if errors.Is(err, tiers.ErrNotFound) {
			return there, nil
		}
		if err != nil {
			return nil, err
		}
		for i := range page.Returns {
			there[page.Returns[i].Minion] = true
		}
		if page.Next == "" {
			return there, nil
		}
		q.After = page.Next
	}
}

// has says whether a head has what a fact brings, or better.
func has(h *job.Head, f job.Fact) bool {
	switch f := f.(type) {
	case job.Load:
		return h.Load != nil && h.Load.Rank >= f.Rank
	case job.Minions:
		return !slices.ContainsFunc(f.IDs, func(m job.Minion) bool {
			_, found := slices.BinarySearch(h.Minions, m)
			return !found
		})
	case job.EndTime:
		return h.EndTime != nil
	case job.NoCache:
		return h.NoCache != nil
	default:
		return false
	}
}
