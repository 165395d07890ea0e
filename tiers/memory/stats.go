package memory

import "sync/atomic"

// Stats are counts since the cache was made, and what it holds now.
type Stats struct {
	Hits     uint64 // reads that were answered
	Misses   uint64 // reads for which a lower tier has to be asked
	Absents  uint64 // reads of jobs that are known not to exist
	Evicted  uint64 // entries that had to make room
	Expired  uint64 // entries whose TTL had passed
	Rejected uint64 // entries that ristretto did not take, or that were too large
	Entries  int64
	Bytes    int64 // as counted against MaxBytes
}

type counts struct {
	evicted, expired, rejected atomic.Uint64
	entries, bytes             atomic.Int64
}

// Stats gives the counts. They are read one by one while the cache goes on.
func (c *Cache) Stats() Stats {
	s := Stats{
		Evicted:  c.counts.evicted.Load(),
		Expired:  c.counts.expired.Load(),
		Rejected: c.counts.rejected.Load(),
		Entries:  c.counts.entries.Load(),
		Bytes:    c.counts.bytes.Load(),
	}
	for i := range c.shards {
		s.Hits += c.shards[i].hits.Load()
		s.Misses += c.shards[i].misses.Load()
		s.Absents += c.shards[i].absents.Load()
	}
	return s
}
