package memory

import (
	"context"

	"saltern/job"
	"saltern/tiers"
)

var _ tiers.Peeker = (*Cache)(nil)

// Peek says what is held of a job.
func (c *Cache) Peek(_ context.Context, jid job.JID) (tiers.Peek, error) {
	s := c.shard(jid)
	s.mu.RLock()
	defer s.mu.RUnlock()
	e := s.jobs[jid]
	if e == nil || c.expired(e) {
		return tiers.Peek{}, nil
	}
	p := tiers.Peek{Held: !e.absent, Absent: e.absent, Bytes: e.cost, Returns: -1, Stale: !c.isFresh(e.headFresh)}
	if e.expires != 0 {
		p.TTL = e.expires - c.since()
	}
	if e.head.Load != nil {
		p.Version = e.head.Load.Version
	}
	if e.hasReturns {
		p.Returns = len(e.returns.long) + len(e.returns.short)
	}
	return p, nil
}
