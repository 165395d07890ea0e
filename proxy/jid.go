package proxy

import (
	"context"
	"errors"
	"sync"
	"time"

	"saltern/job"
	"saltern/tiers"
)

// reservation gives out times of whole microseconds, each later than the one before. Of several
// proxies each has every nodes-th microsecond, so that two of different numbers never give out the
// same one, whatever the tiers that they share are doing.
type reservation struct {
	node, nodes int

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
	nodes := int64(max(r.nodes, 1))
	ahead := (int64(r.node) - now.UnixMicro()%nodes + nodes) % nodes
	r.last = now.Add(time.Duration(ahead) * time.Microsecond)
	return r.last
}

const (
	// reserveTries bounds the search for a jid that no job has. More than one is needed only when
	// the clock went back to before a restart, or two proxies have one number.
	reserveTries = 100
	// reserveBudget is for asking shared tiers: publishing waits for it.
	reserveBudget = 4 * time.Millisecond
)

// PrepJID mints a jid in Salt's own form that no other caller gets and no job has. When neither a
// shared tier nor the store can be asked it is unique among those of this proxy's number
// (Options.JIDNode); Stats.LocalJIDs counts those.
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
		mine, err := p.reserve(ctx, jid)
		switch {
		case err != nil:
			p.Stats.LocalJIDs.Add(1)
			p.o.Logger.Debug("jid is unique among those of this proxy only", "err", err)
			// While the store is away, what the cache holds is answered without asking it.
			p.minted.add(jid)
			return jid
		case mine:
			p.minted.add(jid)
			return jid
		}
	}
	return jid
}

// reserve asks the fastest tier that can tell whether a jid is this caller's: a shared one, for
// which nobody waits long, or else the store.
func (p *Proxy) reserve(ctx context.Context, jid job.JID) (mine bool, err error) {
	for _, t := range p.o.Shared {
		r, can := t.(tiers.Reserver)
		if !can {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, reserveBudget)
		mine, err := r.Reserve(ctx, jid)
		cancel()
		if err == nil {
			return mine, nil
		}
	}
	if len(p.o.Shared) > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, reserveBudget)
		defer cancel()
	}
	_, err = p.o.Store.Head(ctx, jid)
	if errors.Is(err, tiers.ErrNotFound) {
		return true, nil
	}
	return false, err
}

// minted are jids that were minted here and have not been published yet: a publish of one of them
// is the first fact of its job, also where the store does not say so.
type minted struct {
	mu    sync.Mutex // guards the rest
	jids  map[job.JID]struct{}
	order []job.JID // oldest first; may have some that are no longer in jids
}

// maxMinted bounds the memory for jids whose publish never comes.
const maxMinted = 4096

func (m *minted) add(jid job.JID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.jids == nil {
		m.jids = make(map[job.JID]struct{})
	}
	m.jids[jid] = struct{}{}
	m.order = append(m.order, jid)
	if len(m.order) > maxMinted {
		delete(m.jids, m.order[0])
		m.order = m.order[1:]
	}
}

// has says whether a jid was minted here and has not been published yet.
func (m *minted) has(jid job.JID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, is := m.jids[jid]
	return is
}

// take says, once for each jid, whether it was minted here.
func (m *minted) take(jid job.JID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, is := m.jids[jid]
	delete(m.jids, jid)
	return is
}
