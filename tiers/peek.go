package tiers

import (
	"context"
	"time"

	"saltern/job"
)

// Peek is what a cache holds of a job.
type Peek struct {
	Held    bool
	Absent  bool          // it holds that there is no such job
	Version job.Version   // of the load; 0 without one
	Returns int           // how many it holds; -1 when it does not hold all that there are
	Bytes   int64         // what it counts for the job; 0 where that is not known
	TTL     time.Duration // until it forgets the job; 0 for no such time
	Stale   bool          // it is kept for when no tier can be asked, and not answered with
}

// Peeker is a cache that can be looked into.
type Peeker interface {
	// Peek says what the cache holds of a job and leaves it as it is: it counts as no read, keeps nothing
	// for longer and gives no lease. An error says that it could not be asked.
	Peek(ctx context.Context, jid job.JID) (Peek, error)
}
