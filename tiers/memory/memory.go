// Package memory is the cache in the process: whole jobs under a bound of bytes, and for a short
// time the knowledge that a job does not exist. It holds nothing that is not in a durable store too.
//
// Which jobs are held is in one index (shard.jobs); what is in the index is exact, always. Around it
// are two places that only decide how long a job stays there:
//
//	Fill --> window of fresh jobs --> ristretto --> gone
//	           ^                        |
//	           +---- grew by a fact ----+
//
// A cache of jobs is read for what was written minutes ago. TinyLFU, which ristretto is, refuses just
// those: it admits what was seen often. The window keeps them until their reads have been counted,
// and ristretto keeps, of the rest, what is read again and again. Neither is ever asked for a value:
// a Set of ristretto is not seen by the next Get, and may be dropped, so what it holds cannot be the
// truth. It holds tickets, and says when one went.
//
// Locks: shard.mu, then queue.mu. Neither is held over a call of ristretto: its callbacks take
// shard.mu, on its own goroutine or on the caller's.
package memory

import (
	"context"
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dgraph-io/ristretto/v2"

	"saltern/job"
	"saltern/tiers"
)

// Options configure a Cache.
type Options struct {
	// MaxBytes bounds the memory of what is held, with all that is around it; default 64 MiB. The
	// process may use 1.3 times as much for it.
	MaxBytes int64
	// WindowShare is the part of MaxBytes for fresh jobs, 0.05 to 0.95; default 0.25. Half of the
	// window is the largest job that is held with its returns.
	WindowShare float64
	// Now is the clock of TTLs; default time.Now.
	Now func() time.Time
}

const (
	defaultMaxBytes = 64 << 20
	// defaultWindowShare: with a quarter a trace of jobs hits as with a pure LRU, and a Zipfian one
	// within a point of pure ristretto (measured before this was written).
	defaultWindowShare = 0.25

	// negativeShare is the part of MaxBytes for absent jobs: whoever asks for jobs that do not exist
	// cannot push out any that do.
	negativeShare = 1.0 / 64
	// pendingShare bounds what is on its way into ristretto, which charges it only later.
	pendingShare = 1.0 / 16

	// shardCount is well above the number of cores, so that two calls seldom want one lock.
	shardCount = 64
)

// Cache is a tiers.Tier and a tiers.Filler.
type Cache struct {
	now    func() time.Time
	start  time.Time // TTLs are counted from here, by the monotonic clock where there is one
	maxJob int64

	seed   maphash.Seed
	shards [shardCount]shard

	window   queue // of jobs
	negative queue // of absent jobs
	main     *ristretto.Cache[string, *ticket]

	pending    atomic.Int64 // bytes of entries that ristretto has not charged yet
	maxPending int64

	counts counts
}

// shard is a part of the index, by the hash of the jid.
type shard struct {
	mu   sync.RWMutex // guards jobs, and the entries in it but what queue.mu guards
	jobs map[job.JID]*entry

	hits, misses, absents atomic.Uint64 // here, so that cores do not share their cache lines
}

var (
	_ tiers.Tier        = (*Cache)(nil)
	_ tiers.Filler      = (*Cache)(nil)
	_ tiers.StaleReader = (*Cache)(nil)
)

// New makes an empty cache. Close ends it.
func New(o Options) (*Cache, error) {
	if o.MaxBytes == 0 {
		o.MaxBytes = defaultMaxBytes
	}
	if o.WindowShare == 0 {
		o.WindowShare = defaultWindowShare
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.MaxBytes < 0 {
		return nil, fmt.Errorf("max bytes is %d; set it to a positive number, or 0 for the default", o.MaxBytes)
	}
	if !(o.WindowShare >= 0.05 && o.WindowShare <= 0.95) {
		return nil, fmt.Errorf("window share is %v; set it between 0.05 and 0.95", o.WindowShare)
	}
	share := func(s float64) int64 { return max(1, int64(s*float64(o.MaxBytes))) }
	c := &Cache{
		now: o.Now, start: o.Now(), seed: maphash.MakeSeed(),
		maxJob: share(o.WindowShare / 2), maxPending: share(pendingShare),
	}
	for i := range c.shards {
		c.shards[i].jobs = make(map[job.JID]*entry)
	}
	c.window.init(share(o.WindowShare))
	c.negative.init(share(negativeShare))
	var err error
	c.main, err = c.newMain(share(1 - o.WindowShare - negativeShare))
	if err != nil {
		return nil, fmt.Errorf("ristretto: %w", err)
	}
	return c, nil
}

// Name is "memory".
func (c *Cache) Name() string { return "memory" }

// Close stops ristretto's goroutines.
func (c *Cache) Close() error {
	c.main.Close()
	return nil
}

// Head gives the head of a job that is held.
func (c *Cache) Head(_ context.Context, jid job.JID) (job.Head, error) {
	var h job.Head
	err := c.read(jid, func(e *entry) bool {
		h = e.head
		return c.isFresh(e.headFresh)
	})
	return h, err
}

// StaleHead is Head for when nobody else answers.
func (c *Cache) StaleHead(_ context.Context, jid job.JID) (job.Head, error) {
	var h job.Head
	err := c.read(jid, func(e *entry) bool {
		h = e.head
		return true
	})
	return h, err
}

// Returns gives returns of a job that is held with all of them.
func (c *Cache) Returns(_ context.Context, jid job.JID, q tiers.ReturnQuery) (tiers.ReturnPage, error) {
	return c.returns(jid, q, false)
}

// StaleReturns is Returns for when nobody else answers.
func (c *Cache) StaleReturns(_ context.Context, jid job.JID, q tiers.ReturnQuery) (tiers.ReturnPage, error) {
	return c.returns(jid, q, true)
}

func (c *Cache) returns(jid job.JID, q tiers.ReturnQuery, stale bool) (tiers.ReturnPage, error) {
	var page tiers.ReturnPage
	err := c.read(jid, func(e *entry) bool {
		if !e.hasReturns || !stale && !c.isFresh(e.returnsFresh) {
			return false
		}
		page = e.returns.page(q)
		return true
	})
	return page, err
}

func (c *Cache) isFresh(until time.Duration) bool { return until == 0 || c.since() < until }

// read calls use with the entry of a job, under the lock, and counts what became of it. use says
// whether the entry has what was asked for.
func (c *Cache) read(jid job.JID, use func(*entry) bool) error {
	s := c.shard(jid)
	s.mu.RLock()
	e := s.jobs[jid]
	if e == nil || c.expired(e) {
		s.mu.RUnlock()
		s.misses.Add(1)
		if e != nil {
			c.expire(e)
		}
		return tiers.ErrNotFound
	}
	if e.absent {
		s.mu.RUnlock()
		s.absents.Add(1)
		return tiers.ErrAbsent
	}
	has := use(e)
	s.mu.RUnlock()
	if !has {
		s.misses.Add(1)
		return tiers.ErrNotFound
	}
	s.hits.Add(1)
	e.touch()
	// For the count alone: how often a job in the window was read decides whether ristretto takes it.
	c.main.Get(string(jid))
	return nil
}

func (c *Cache) shard(jid job.JID) *shard {
	return &c.shards[maphash.String(c.seed, string(jid))%shardCount]
}

func (c *Cache) expired(e *entry) bool {
	return e.expires != 0 && c.since() >= e.expires
}

// since is the time since the cache was made.
func (c *Cache) since() time.Duration { return c.now().Sub(c.start) }
