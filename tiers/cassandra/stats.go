package cassandra

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/apache/cassandra-gocql-driver/v2"
)

// Stats are counts of the driver since the store was opened.
type Stats struct {
	Queries       uint64 // attempts of statements, retries among them
	QueryErrors   uint64
	Batches       uint64
	BatchErrors   uint64
	Retries       uint64 // attempts after the first
	Timeouts      uint64 // attempts that the driver gave up
	Connects      uint64
	ConnectErrors uint64
	Corrupt       uint64 // stored values that could not be read and count as missing
	Up            bool   // there is a session
}

// Stats gives the counts. They are read one by one while the store goes on.
func (s *Store) Stats() Stats {
	c := s.o.counts
	return Stats{
		Queries: c.queries.Load(), QueryErrors: c.queryErrors.Load(),
		Batches: c.batches.Load(), BatchErrors: c.batchErrors.Load(),
		Retries: c.retries.Load(), Timeouts: c.timeouts.Load(),
		Connects: c.connects.Load(), ConnectErrors: c.connectErrors.Load(),
		Corrupt: s.Corrupt(), Up: s.Ready() == nil,
	}
}

// counts observe the driver.
type counts struct {
	queries, queryErrors, batches, batchErrors atomic.Uint64
	retries, timeouts, connects, connectErrors atomic.Uint64
}

// ObserveQuery implements gocql.QueryObserver.
func (c *counts) ObserveQuery(_ context.Context, q gocql.ObservedQuery) {
	c.attempt(&c.queries, &c.queryErrors, q.Attempt, q.Err)
}

// ObserveBatch implements gocql.BatchObserver.
func (c *counts) ObserveBatch(_ context.Context, b gocql.ObservedBatch) {
	c.attempt(&c.batches, &c.batchErrors, b.Attempt, b.Err)
}

func (c *counts) attempt(n, failed *atomic.Uint64, attempt int, err error) {
	n.Add(1)
	if attempt > 0 {
		c.retries.Add(1)
	}
	if err == nil || errors.Is(err, gocql.ErrNotFound) {
		return
	}
	failed.Add(1)
	if errors.Is(err, gocql.ErrTimeoutNoResponse) || errors.Is(err, context.DeadlineExceeded) {
		c.timeouts.Add(1)
	}
}

// ObserveConnect implements gocql.ConnectObserver.
func (c *counts) ObserveConnect(o gocql.ObservedConnect) {
	c.connects.Add(1)
	if o.Err != nil {
		c.connectErrors.Add(1)
	}
}
