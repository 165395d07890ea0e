package memory

import (
	"sync/atomic"

	"github.com/dgraph-io/ristretto/v2"
)

// This file moves entries between the index, the queues and ristretto.
//
// A ticket is made for each time that an entry goes into ristretto. When a ticket leaves there and is
// still the entry's own, the entry leaves the index; an older ticket means nothing. That makes it
// harmless that ristretto may drop, refuse or evict a ticket at any time, apply a Set long after it
// was called, or let a Del take what was set after it.

// ticket stands for an entry in ristretto.
type ticket struct {
	e       *entry
	size    int64       // what c.pending counts for it
	charged atomic.Bool // ristretto has charged it: c.pending counts it no more
}

// perCounter is how many bytes of cache there are for one of ristretto's counters of reads: it
// wants ten a job, and a job has some 2 KiB. A counter takes three bytes.
const perCounter = 200

func (c *Cache) newMain(maxBytes int64) (*ristretto.Cache[string, *ticket], error) {
	return ristretto.NewCache(&ristretto.Config[string, *ticket]{
		NumCounters: max(1000, maxBytes/perCounter),
		MaxCost:     maxBytes,
		BufferItems: 64, // ristretto's advice
		// entryOverhead counts what an item takes.
		IgnoreInternalCost: true,
		Cost:               c.charge,
		OnEvict:            func(i *ristretto.Item[*ticket]) { c.left(i.Value, &c.counts.evicted) },
		OnReject:           func(i *ristretto.Item[*ticket]) { c.left(i.Value, &c.counts.rejected) },
		OnExit:             func(t *ticket) { c.left(t, &c.counts.evicted) }, // after those two as well
	})
}

// insert puts a new entry into the index and its queue. The shard is locked.
func (c *Cache) insert(e *entry) {
	if !e.shrink(c.maxJob) {
		c.counts.rejected.Add(1)
		return
	}
	e.shard.jobs[e.jid] = e
	c.counts.entries.Add(1)
	c.counts.bytes.Add(e.cost)
	c.queueOf(e).add(e, e.cost)
}

func (c *Cache) queueOf(e *entry) *queue {
	if e.absent {
		return &c.negative
	}
	return &c.window
}

// resize counts the new cost of an entry. One that grew is being written, so it goes back from
// ristretto to the window: the ticket that it then leaves behind is to be torn up. The shard is
// locked.
func (c *Cache) resize(e *entry) (left *ticket) {
	was := e.cost
	e.measure()
	if !e.shrink(c.maxJob) {
		e.cost = was // that is what remove takes off
		c.counts.rejected.Add(1)
		return c.remove(e)
	}
	c.counts.bytes.Add(e.cost - was)
	if e.ticket == nil {
		c.window.resize(e, e.cost)
		return nil
	}
	if e.cost <= was {
		return nil
	}
	left, e.ticket = e.ticket, nil
	c.window.add(e, e.cost)
	return left
}

// remove takes an entry out of the index and its queue. The ticket that it leaves behind, if any, is
// to be torn up. The shard is locked.
func (c *Cache) remove(e *entry) (left *ticket) {
	delete(e.shard.jobs, e.jid)
	c.queueOf(e).remove(e)
	e.dead = true
	left, e.ticket = e.ticket, nil
	c.counts.entries.Add(-1)
	c.counts.bytes.Add(-e.cost)
	return left
}

// tearUp takes a ticket that an entry left behind out of ristretto. No lock may be held: a full
// buffer makes ristretto wait for its goroutine, which may wait for the lock.
func (c *Cache) tearUp(t *ticket) {
	if t != nil {
		c.main.Del(string(t.e.jid))
	}
}

// demoteOverflow moves what is too much for a queue out of it.
func (c *Cache) demoteOverflow(q *queue) {
	for _, e := range q.overflow() {
		c.demote(e)
	}
}

// demote offers an entry that left its queue to ristretto, or forgets it. Until ristretto has
// decided, the entry is held and exact.
func (c *Cache) demote(e *entry) {
	s := e.shard
	s.mu.Lock()
	switch {
	case e.dead:
		s.mu.Unlock()
		return
	case e.absent || c.expired(e) || c.pending.Load() > c.maxPending:
		c.remove(e)
		c.countDemoted(e)
		s.mu.Unlock()
		return
	}
	t := &ticket{e: e, size: e.cost}
	e.ticket = t
	s.mu.Unlock()

	c.pending.Add(t.size)
	if !c.main.Set(string(e.jid), t, 0) { // a cost of 0 makes it ask charge, when it comes to it
		c.left(t, &c.counts.rejected)
		return
	}
	s.mu.RLock()
	current := e.ticket == t
	s.mu.RUnlock()
	if !current {
		// The ticket was left behind before it was set, and so could not be torn up.
		c.tearUp(t)
	}
}

func (c *Cache) countDemoted(e *entry) {
	switch {
	case c.expired(e):
		c.counts.expired.Add(1)
	case e.absent:
		c.counts.evicted.Add(1)
	default:
		c.counts.rejected.Add(1)
	}
}

// charge is called by ristretto, on its goroutine, when it considers a ticket.
func (c *Cache) charge(t *ticket) int64 {
	c.settle(t)
	t.e.shard.mu.RLock()
	defer t.e.shard.mu.RUnlock()
	return t.e.cost
}

// left is called by ristretto, on any goroutine, when a ticket has left it or was not let in; with
// nil where it looked for one in vain.
func (c *Cache) left(t *ticket, count *atomic.Uint64) {
	if t == nil {
		return
	}
	c.settle(t)
	s := t.e.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.e.ticket == t {
		c.remove(t.e)
		count.Add(1)
	}
}

// settle ends the counting of a ticket as pending.
func (c *Cache) settle(t *ticket) {
	if t.charged.CompareAndSwap(false, true) {
		c.pending.Add(-t.size)
	}
}
