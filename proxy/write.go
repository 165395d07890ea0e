package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"saltern/job"
	"saltern/telemetry"
	"saltern/tiers"
)

// Write stores facts: all of them are durable, and seen by every read through this proxy, when it
// returns, and the outcomes say what became of each. After an error none of them is acknowledged;
// some may yet be stored, which a second Write of the same facts does not mind.
//
// Versions are given here; facts that have one keep it (a replay).
func (p *Proxy) Write(ctx context.Context, facts ...job.Fact) ([]job.Outcome, error) {
	if len(facts) == 0 {
		return nil, nil
	}
	if !p.gate.enter() {
		return nil, ErrClosed
	}
	defer p.gate.leave()
	facts, err := p.stampAll(facts)
	if err != nil {
		return nil, err
	}
	begun := p.beginCreations(facts)
	l := lookup(telemetry.Write, facts[0].Job(), Skipped)
	outcomes, err := p.fanOut(telemetry.WithSteps(ctx, &l.Steps), facts)
	l.Version = uint64(facts[0].Stamp())
	p.looked(ctx, l, err)
	if err != nil {
		p.Stats.WriteErrors.Add(1)
		cancelAll(begun)
		if !storedNothing(err) {
			p.forgetAll(ctx, facts)
		}
		return nil, err
	}
	p.show(ctx, begun, facts, outcomes)
	p.Stats.Writes.Add(1)
	p.countReturns(facts, outcomes)
	return outcomes, nil
}

// stampAll gives the facts in a slice of their own: tiers may keep it when the caller goes on.
func (p *Proxy) stampAll(facts []job.Fact) ([]job.Fact, error) {
	stamped := make([]job.Fact, len(facts))
	for i, f := range facts {
		f, err := p.stamp(f)
		if err != nil {
			return nil, err
		}
		stamped[i] = f
	}
	return stamped, nil
}

// storedNothing says whether an error of the store means that it took nothing of a write. The
// cache goes on answering then: while the store is away it is all that there is.
func storedNothing(err error) bool {
	for _, refused := range []error{tiers.ErrOpen, tiers.ErrFull, tiers.ErrTooLarge, tiers.ErrInvalid} {
		if errors.Is(err, refused) {
			return true
		}
	}
	return false
}

// stamp checks a fact and gives it a version and a master where it has none.
func (p *Proxy) stamp(f job.Fact) (job.Fact, error) {
	switch f := f.(type) {
	case job.Load:
		p.version(&f.Version)
		f.Master = cmp.Or(f.Master, p.o.Master)
		return f, checkJID(f.JID)
	case job.Minions:
		p.version(&f.Version)
		return f, cmp.Or(checkJID(f.JID), checkMinions(f.IDs...))
	case job.Return:
		p.version(&f.Version)
		return f, cmp.Or(checkJID(f.JID), checkMinions(f.Minion))
	case job.EndTime:
		p.version(&f.Version)
		return f, checkJID(f.JID)
	case job.NoCache:
		p.version(&f.Version)
		return f, checkJID(f.JID)
	case job.Event:
		p.version(&f.Version)
		f.Master = cmp.Or(f.Master, p.o.Master)
		return f, nil
	default:
		return nil, fmt.Errorf("%w: fact %T", tiers.ErrInvalid, f)
	}
}

func (p *Proxy) version(v *job.Version) {
	if *v == 0 {
		*v = p.o.Clock.Next()
		return
	}
	p.o.Clock.Observe(*v)
}

func checkJID(jid job.JID) error { return checkLength("jid", len(jid), job.MaxJIDBytes) }

func checkMinions(ids ...job.Minion) error {
	for _, id := range ids {
		if err := checkLength("minion id", len(id), job.MaxMinionBytes); err != nil {
			return err
		}
	}
	return nil
}

func checkLength(what string, n, most int) error {
	if n == 0 || n > most {
		return fmt.Errorf("%w: %s of %d bytes; 1 to %d are allowed", tiers.ErrInvalid, what, n, most)
	}
	return nil
}

// beginCreations begins a fill for each job of which these facts may be the first, so that facts
// written beside this call are in what the cache is filled with.
func (p *Proxy) beginCreations(facts []job.Fact) map[job.JID]*fill {
	var begun map[job.JID]*fill
	for _, f := range facts {
		l, isLoad := f.(job.Load)
		if !isLoad || begun[l.JID] != nil {
			continue
		}
		if begun == nil {
			begun = make(map[job.JID]*fill, 1)
		}
		begun[l.JID] = p.fills.begin(l.JID, true)
	}
	return begun
}

func cancelAll(begun map[job.JID]*fill) {
	for _, f := range begun {
		f.cancel()
	}
}

// forgetAll takes the jobs of facts, of which it is not known whether they are stored, out of the
// cache.
func (p *Proxy) forgetAll(ctx context.Context, facts []job.Fact) {
	for _, f := range facts {
		if f.Job() != "" {
			p.fills.forget(ctx, f.Job())
		}
	}
}

// show makes stored facts visible to readers of the cache. The first fact of a job makes the cache
// hold it: nothing else is known of it but what was noted meanwhile.
func (p *Proxy) show(
	ctx context.Context, begun map[job.JID]*fill, facts []job.Fact, outcomes []job.Outcome,
) {
	created := make(map[job.JID]bool, 1)
	for _, f := range facts {
		// The mark of a nocache job comes before its publish, which is then not the first fact.
		if p.minted.take(f.Job()) && begun[f.Job()] != nil {
			created[f.Job()] = true
		}
	}
	for i, f := range facts {
		switch {
		case f.Job() == "":
			continue
		case outcomes[i] == job.Dropped:
			continue
		case outcomes[i] == job.Differs:
			// The cache may lack the return that was there first.
			p.fills.forget(ctx, f.Job())
			continue
		case outcomes[i] == job.Created:
			created[f.Job()] = true
		}
		p.fills.note(ctx, f)
	}
	for jid, f := range begun {
		if created[jid] {
			// Overtaken or not, the facts are stored; the cache is then left without the job.
			_, _ = f.commit(tiers.Snapshot{Head: job.Head{JID: jid}, HasReturns: true}, p.ttl)
		} else {
			f.cancel()
		}
	}
}
