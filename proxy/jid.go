package proxy

import (
	"context"
	"errors"
	"sync"
	"time"

	"saltern/job"
	"saltern/tiers"
)

// reservation gives out times of whole microseconds, each later than the one before.
type reservation struct {
	mu   sync.Mutex // guards last
	last time.Time
}

func (r *reservation) next(now time.Time) time.Time {
	now = now.UTC().Truncate(time.Microsecond)
	r.mu.Lock()
	defer r.mu.Unlock()
	if !now.After(r.last) {
		now = r.last.Add(time.Microsecond)
	}
	r.last = now
	return now
}

// reserveTries bounds the search for a jid that no job has. More than one is needed only when the
// clock went back to before a restart.
const reserveTries = 100

// PrepJID mints a jid in Salt's own form that no other caller gets and no job has. When the store
// cannot be asked it is unique among those that this process gave out.
func (p *Proxy) PrepJID(ctx context.Context) job.JID {
	if !p.gate.enter() {
		return job.NewJID(p.jids.next(p.o.Now()))
	}
	defer p.gate.leave()
	ctx, cancel := p.within(ctx)
	defer cancel()
	var jid job.JID
	for range reserveTries {
		jid = job.NewJID(p.jids.next(p.o.Now()))
		_, err := p.o.Store.Head(ctx, jid)
		if err != nil {
			if !errors.Is(err, tiers.ErrNotFound) {
				p.o.Logger.Debug("jid is unique in this process only", "err", err)
			}
			return jid
		}
	}
	return jid
}
