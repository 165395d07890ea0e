package memory

import (
	"context"
	"time"

	"saltern/job"
	"saltern/tiers"
)

// Merge merges facts into the jobs that are held.
func (c *Cache) Merge(_ context.Context, facts []job.Fact) ([]job.Outcome, error) {
	outcomes := make([]job.Outcome, len(facts))
	for i, f := range facts {
		outcomes[i] = c.merge(f)
	}
	c.demoteOverflow(&c.window)
	return outcomes, nil
}

func (c *Cache) merge(f job.Fact) job.Outcome {
	jid := f.Job()
	s := c.shard(jid)
	s.mu.Lock()
	e := s.jobs[jid]
	if e == nil {
		s.mu.Unlock()
		return job.Stored
	}
	outcome := job.Stored
	var left *ticket
	switch {
	case c.expired(e):
		left = c.remove(e)
		c.counts.expired.Add(1)
	case e.absent: // it is not, any more
		left = c.remove(e)
	default:
		outcome = e.merge(f)
		left = c.resize(e)
	}
	s.mu.Unlock()
	c.tearUp(left)
	return outcome
}

// Fill merges a job into the cache, or into what it holds of it. A job that is too large is held
// without its returns, or not at all.
func (c *Cache) Fill(_ context.Context, snap tiers.Snapshot) error {
	if snap.TTL < 0 {
		return c.Evict(context.Background(), snap.Head.JID)
	}
	expires, fresh := c.until(snap.TTL), c.until(snap.Fresh)
	s := c.shard(snap.Head.JID)
	s.mu.Lock()
	left := c.sweep(s)
	e := s.jobs[snap.Head.JID]
	if e != nil && (c.expired(e) || e.absent) {
		left = append(left, c.remove(e))
		e = nil
	}
	switch {
	case e == nil:
		c.insert(newEntry(s, snap, expires, fresh))
	case snap.Absent: // facts came after it was read: they are right
	default:
		left = append(left, c.refill(e, snap, expires, fresh))
	}
	s.mu.Unlock()
	for _, t := range left {
		c.tearUp(t)
	}
	c.demoteOverflow(&c.window)
	c.demoteOverflow(&c.negative)
	return nil
}

// refill merges a snapshot into an entry. What it knew of the returns is not made younger by a
// snapshot without any.
func (c *Cache) refill(e *entry, snap tiers.Snapshot, expires, fresh time.Duration) *ticket {
	if e.hasReturns && !snap.HasReturns && e.expires != 0 && (expires == 0 || e.expires < expires) {
		expires = e.expires
	}
	e.expires = expires
	e.fill(snap, fresh)
	return c.resize(e)
}

// until is when a span from now ends; 0 for never, as 0 is of the span. One below 0 is over.
func (c *Cache) until(span time.Duration) time.Duration {
	switch {
	case span == 0:
		return 0
	case span < 0:
		return doubted
	}
	return c.since() + span
}

// doubted is never fresh.
const doubted = time.Duration(-1)

// Doubt keeps a job for StaleHead and StaleReturns alone, until it is filled again.
func (c *Cache) Doubt(jid job.JID) {
	s := c.shard(jid)
	s.mu.Lock()
	var left *ticket
	if e := s.jobs[jid]; e != nil {
		left = c.doubt(e)
	}
	s.mu.Unlock()
	c.tearUp(left)
}

// DoubtAll is Doubt of every job that is held.
func (c *Cache) DoubtAll() {
	for i := range c.shards {
		s := &c.shards[i]
		var left []*ticket
		s.mu.Lock()
		for _, e := range s.jobs {
			left = append(left, c.doubt(e))
		}
		s.mu.Unlock()
		for _, t := range left {
			c.tearUp(t)
		}
	}
}

// doubt takes an entry out when there was no such job: there may be one now. The shard is locked.
func (c *Cache) doubt(e *entry) *ticket {
	if e.absent {
		return c.remove(e)
	}
	e.headFresh, e.returnsFresh = doubted, doubted
	return nil
}

// Evict forgets a job.
func (c *Cache) Evict(_ context.Context, jid job.JID) error {
	s := c.shard(jid)
	s.mu.Lock()
	var left *ticket
	if e := s.jobs[jid]; e != nil {
		left = c.remove(e)
	}
	s.mu.Unlock()
	c.tearUp(left)
	return nil
}

// expire forgets an entry whose time has passed.
func (c *Cache) expire(e *entry) {
	s := e.shard
	s.mu.Lock()
	var left *ticket
	if !e.dead && c.expired(e) {
		left = c.remove(e)
		c.counts.expired.Add(1)
	}
	s.mu.Unlock()
	c.tearUp(left)
}

// swept is how many entries a fill looks at for ones whose time has passed and that nobody reads.
// With more than one a fill, they cannot pile up.
const swept = 2

// sweep forgets a few entries whose time has passed. The shard is locked.
func (c *Cache) sweep(s *shard) (left []*ticket) {
	looked := 0
	for _, e := range s.jobs {
		if looked++; looked > swept {
			break
		}
		if c.expired(e) {
			left = append(left, c.remove(e))
			c.counts.expired.Add(1)
		}
	}
	return left
}
