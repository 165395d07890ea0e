package proxytest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"saltern/job"
	"saltern/tiers"
)

// Cache is a cache without bound in a map: the one in the process, or, with Leases, a shared one.
// The zero value is an empty one; fields are set before its first use.
type Cache struct {
	hooks
	// Called is its name; default "cache".
	Called string
	// Leases makes a miss lease the right to fill, as a shared tier does: a fill without the lease
	// is declined, and a fact of the job takes the lease away.
	Leases bool
	// Forgetful makes it hold nothing at all, as one that is very small.
	Forgetful bool

	mu     sync.Mutex // guards the rest
	jobs   map[job.JID]*cached
	leases map[job.JID]string
	leased int
	fills  map[job.JID]tiers.Snapshot // the last one of each job
}

type cached struct {
	jobData
	hasReturns, absent bool
	expires, fresh     time.Time // until when it is kept, and answered with; zero for ever
}

var (
	_ tiers.Tier        = (*Cache)(nil)
	_ tiers.Filler      = (*Cache)(nil)
	_ tiers.StaleReader = (*Cache)(nil)
)

// Name is the name of the cache.
func (c *Cache) Name() string {
	if c.Called == "" {
		return "cache"
	}
	return c.Called
}

// Close does nothing.
func (c *Cache) Close() error { return nil }

// Holds says whether the cache knows something of a job.
func (c *Cache) Holds(jid job.JID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.get(jid) != nil
}

// Filled gives the last snapshot that the cache was filled with of a job.
func (c *Cache) Filled(jid job.JID) (tiers.Snapshot, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, ok := c.fills[jid]
	return s, ok
}

func (c *Cache) get(jid job.JID) *cached {
	d := c.jobs[jid]
	if d != nil && !d.expires.IsZero() && !time.Now().Before(d.expires) {
		delete(c.jobs, jid)
		return nil
	}
	return d
}

// old says whether the job may be answered with only when nobody else answers.
func (d *cached) old() bool { return !d.fresh.IsZero() && !time.Now().Before(d.fresh) }

// Doubt makes a job old, and forgets that there is none.
func (c *Cache) Doubt(jid job.JID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.doubt(jid)
}

// DoubtAll is Doubt of every job.
func (c *Cache) DoubtAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for jid := range c.jobs {
		c.doubt(jid)
	}
}

func (c *Cache) doubt(jid job.JID) {
	switch d := c.get(jid); {
	case d == nil:
	case d.absent:
		delete(c.jobs, jid)
	default:
		d.fresh = time.Now()
	}
}

func (c *Cache) miss(jid job.JID) error {
	if !c.Leases {
		return tiers.ErrNotFound
	}
	if c.leases == nil {
		c.leases = make(map[job.JID]string)
	}
	c.leased++
	c.leases[jid] = fmt.Sprint(c.leased)
	return &tiers.Miss{Lease: c.leases[jid]}
}

// Head gives the head of a job that is held.
func (c *Cache) Head(ctx context.Context, jid job.JID) (job.Head, error) {
	return c.head(ctx, jid, false)
}

// StaleHead is Head for when nobody else answers.
func (c *Cache) StaleHead(ctx context.Context, jid job.JID) (job.Head, error) {
	return c.head(ctx, jid, true)
}

func (c *Cache) head(ctx context.Context, jid job.JID, stale bool) (job.Head, error) {
	return hooked(ctx, &c.hooks, "head", jid, func() (job.Head, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		switch d := c.get(jid); {
		case d == nil || !stale && d.old():
			return job.Head{}, c.miss(jid)
		case d.absent:
			return job.Head{}, tiers.ErrAbsent
		default:
			return d.head, nil
		}
	})
}

// Returns gives returns of a job that is held with all of them.
func (c *Cache) Returns(ctx context.Context, jid job.JID, q tiers.ReturnQuery) (tiers.ReturnPage, error) {
	return c.returns(ctx, jid, q, false)
}

// StaleReturns is Returns for when nobody else answers.
func (c *Cache) StaleReturns(ctx context.Context, jid job.JID, q tiers.ReturnQuery) (tiers.ReturnPage, error) {
	return c.returns(ctx, jid, q, true)
}

func (c *Cache) returns(
	ctx context.Context, jid job.JID, q tiers.ReturnQuery, stale bool,
) (tiers.ReturnPage, error) {
	return hooked(ctx, &c.hooks, "returns", jid, func() (tiers.ReturnPage, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		switch d := c.get(jid); {
		case d != nil && d.absent:
			return tiers.ReturnPage{}, tiers.ErrAbsent
		case d == nil || !d.hasReturns || !stale && d.old():
			return tiers.ReturnPage{}, c.miss(jid)
		default:
			return d.page(q), nil
		}
	})
}

// Merge merges facts into the jobs that are held.
func (c *Cache) Merge(ctx context.Context, facts []job.Fact) ([]job.Outcome, error) {
	return hooked(ctx, &c.hooks, "merge", facts[0].Job(), func() ([]job.Outcome, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, f := range facts {
			delete(c.leases, f.Job())
			switch d := c.get(f.Job()); {
			case d == nil:
			case d.absent:
				delete(c.jobs, f.Job())
			default:
				d.merge(f)
			}
		}
		return make([]job.Outcome, len(facts)), nil
	})
}

// Fill merges a snapshot into the cache.
func (c *Cache) Fill(ctx context.Context, s tiers.Snapshot) error {
	jid := s.Head.JID
	_, err := hooked(ctx, &c.hooks, "fill", jid, func() (struct{}, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.Forgetful || c.Leases && (s.Lease == "" || c.leases[jid] != s.Lease) {
			return struct{}{}, nil
		}
		delete(c.leases, jid)
		if c.fills == nil {
			c.fills, c.jobs = make(map[job.JID]tiers.Snapshot), make(map[job.JID]*cached)
		}
		c.fills[jid] = s
		c.fill(s)
		return struct{}{}, nil
	})
	return err
}

func (c *Cache) fill(s tiers.Snapshot) {
	d := c.get(s.Head.JID)
	switch {
	case d == nil || d.absent:
		d = &cached{absent: s.Absent, jobData: jobData{
			head: job.Head{JID: s.Head.JID}, returns: make(map[job.Minion]job.Return)}}
		c.jobs[s.Head.JID] = d
	case s.Absent:
		return
	}
	d.head = job.MergeHead(d.head, s.Head)
	d.hasReturns = d.hasReturns || s.HasReturns
	for _, r := range s.Returns {
		d.merge(r)
	}
	d.expires = time.Time{}
	if s.TTL > 0 {
		d.expires = time.Now().Add(s.TTL)
	}
	d.fresh = time.Time{}
	if s.Fresh != 0 {
		d.fresh = time.Now().Add(s.Fresh)
	}
}

// Evict forgets a job.
func (c *Cache) Evict(ctx context.Context, jid job.JID) error {
	_, err := hooked(ctx, &c.hooks, "evict", jid, func() (struct{}, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.jobs, jid)
		delete(c.leases, jid)
		return struct{}{}, nil
	})
	return err
}
