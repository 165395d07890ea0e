package proxy

import (
	"context"
	"errors"

	"saltern/job"
	"saltern/telemetry"
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
func (p *Proxy) Forget(jid job.JID) { p.fills.doubt(jid) }

// ForgetAll is called when it is not known what other proxies wrote.
func (p *Proxy) ForgetAll() { p.fills.doubtAll() }

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

// orStale is the answer to a read that no tier could answer: what the cache had before, with all that
// was written here since, or else the error. What other proxies wrote in the meantime is not in it.
func orStale[T any](p *Proxy, l *telemetry.Lookup, err error, read func() (T, error)) (T, error) {
	var none T
	if !couldNotTell(err) {
		return none, err
	}
	v, missed := read()
	if missed != nil {
		return none, err
	}
	p.Stats.Stale.Add(1)
	l.Stale = true
	return v, nil
}

// couldNotTell says whether an error of a read leaves open whether there is such a job, and is not
// the reader's own.
func couldNotTell(err error) bool {
	return errors.Is(err, tiers.ErrUnavailable) && !errors.Is(err, ErrClosed)
}
