package redis

import (
	"maps"
	"sync"
	"sync/atomic"

	goredis "github.com/redis/go-redis/v9"
)

// Stats are counts since the tier was made.
type Stats struct {
	Hits     uint64 // reads that were answered
	Misses   uint64 // reads for which the durable store has to be asked
	Absents  uint64 // reads of jobs that are known not to exist
	Fills    uint64 // fills that were taken
	Declined uint64 // fills that came too late or for too large a job
	Corrupt  uint64 // values that were no facts of their place; their jobs were deleted
	// Generations is how often another generation than the one known was met.
	Generations uint64
	// Errors is the number of failed calls by class: see Class.
	Errors map[Class]uint64
	// Pool is of the connections: Timeouts are calls that found none free, StaleConns connections that were
	// given up.
	Pool goredis.PoolStats
}

type counts struct {
	hits, misses, absents, fills, declined, corrupt, generations atomic.Uint64

	mu     sync.Mutex // guards errors
	errors map[Class]uint64
}

func (c *counts) failed(class Class) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.errors == nil {
		c.errors = make(map[Class]uint64)
	}
	c.errors[class]++
}

// Stats gives the counts. They are read one by one while the tier goes on.
func (t *Tier) Stats() Stats {
	c := &t.counts
	s := Stats{
		Hits: c.hits.Load(), Misses: c.misses.Load(), Absents: c.absents.Load(), Fills: c.fills.Load(),
		Declined: c.declined.Load(), Corrupt: c.corrupt.Load(), Generations: c.generations.Load(),
		Pool: *t.client.PoolStats(),
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s.Errors = maps.Clone(c.errors)
	return s
}
