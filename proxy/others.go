package proxy

import (
	"context"
	"errors"

	"saltern/job"
	"saltern/tiers"
)

// Backplane tells other proxies of the same tiers what was written here. What they tell reaches
// Forget and ForgetAll.
type Backplane interface {
	// Publish announces facts that the store has. It does not wait.
	Publish(facts ...job.Fact)
	// Run works until ctx ends.
	Run(ctx context.Context)
}

// Forget is called for a job that another proxy wrote to: what is cached of it here may be old. It is
// answered with only when no tier can be asked.
func (p *Proxy) Forget(jid job.JID) {
	c, can := p.o.Cache.(tiers.StaleReader)
	if !can {
		p.fills.forget(p.ctx, jid)
		return
	}
	p.fills.doubt(jid, c)
}

// ForgetAll is called when it is not known what other proxies wrote.
func (p *Proxy) ForgetAll() {
	switch c := p.o.Cache.(type) {
	case tiers.StaleReader:
		p.fills.doubtAll(func(f *fill) { f.stale = true }, c.DoubtAll)
	case tiers.Forgetter:
		// It is in the process and does not fail.
		p.fills.doubtAll(func(f *fill) { f.doubt = true }, func() { _ = c.ForgetAll(context.WithoutCancel(p.ctx)) })
	}
}

// StoredLate is called for facts that were acknowledged some time ago and that the store has only
// now. Who filled a shared tier from the store in the meantime did not see them: their jobs are
// forgotten there, and the other proxies are told.
func (p *Proxy) StoredLate(facts []job.Fact) {
	for i := range p.o.Shared {
		p.lags[i].late(facts)
	}
	if p.o.Backplane != nil {
		p.o.Backplane.Publish(facts...)
	}
}

// staleHead is the answer to a read of a head that no tier could answer: what the cache had before,
// with all that was written here since, or else the error. What other proxies wrote in the meantime
// is not in it.
func (p *Proxy) staleHead(ctx context.Context, jid job.JID, err error) (job.Head, error) {
	c, can := p.o.Cache.(tiers.StaleReader)
	if !can || !couldNotTell(err) {
		return job.Head{}, err
	}
	h, missed := c.StaleHead(ctx, jid)
	if missed != nil {
		return job.Head{}, err
	}
	p.Stats.Stale.Add(1)
	return h, nil
}

// staleReturns is the same for returns.
func (p *Proxy) staleReturns(
	ctx context.Context, jid job.JID, q tiers.ReturnQuery, err error,
) (tiers.ReturnPage, error) {
	c, can := p.o.Cache.(tiers.StaleReader)
	if !can || !couldNotTell(err) {
		return tiers.ReturnPage{}, err
	}
	page, missed := c.StaleReturns(ctx, jid, q)
	if missed != nil {
		return tiers.ReturnPage{}, err
	}
	p.Stats.Stale.Add(1)
	return page, nil
}

// couldNotTell says whether an error of a read leaves open whether there is such a job, and is not
// the reader's own.
func couldNotTell(err error) bool {
	return errors.Is(err, tiers.ErrUnavailable) && !errors.Is(err, ErrClosed)
}
