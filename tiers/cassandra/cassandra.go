// Package cassandra is the durable store that many masters share. It needs Cassandra 4.0 or later and the
// tables of schema.go, which `saltern schema apply` makes.
//
// # How facts become rows
//
// Nothing is read before it is written, nothing is deleted, and there is no lightweight transaction: the
// merge rules of package job hold because rows only ever add up. Every fact is one row, keyed so that two
// different facts never overwrite each other, unless the rule says that one of them is to go:
//
//	heads           jid                       load (a row a rank; the timestamp is the version, so the last one
//	                                          of a rank stays), minions (a row a list, named by its hash),
//	                                          end time (last version), nocache and birth (a row each)
//	returns         jid, bucket               a row for each minion and version; readers take the first
//	jobs_by_day     day, shard                a row a job, for lists, with its summary
//	jobs_by_minion  day, shard                a row for each minion that a job was sent to or came back from
//	last_functions  shard                     a row a minion; the timestamp is the time of the job
//	events          master, ten minutes       a row an event and version; event_slots says which slots there are
//	registers       master                    last write wins
//	chunks          owner, name, version      values that are too large for a row, in pieces
//	days            kind                      the days that have jobs or events, so that lists skip the others
//
// A first-wins fact could be written with an inverted timestamp too, but a table with those never drops
// an expired SSTable whole (docs/cassandra.md has the figures): the timestamp of a row here is always near the
// time of its version, which is what time-window compaction stands on.
//
// # Outcomes
//
// Repeat, Differs and Dropped are said by what this process has written itself: a minion sends a return again to the
// master that it sent it to. Otherwise a return is Stored; whoever reads it takes the first one all the same, and none that
// is newer than the job's nocache mark. Created is found by a read after the write, both by quorum: of several first
// writers at once at most one is told so.
package cassandra

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/cassandra-gocql-driver/v2"

	"saltern/job"
	"saltern/tiers"
)

// Store is the durable tier in Cassandra. It can be asked at any time: without a session every call gives
// tiers.ErrUnavailable at once, with the reason.
type Store struct {
	o      Options
	log    *slog.Logger
	reads  gocql.Consistency
	writes gocql.Consistency

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	loops  sync.WaitGroup

	link link

	rows  *batcher[row]
	known *known
	days  *generations[dayKey, struct{}]
	slots *generations[slotKey, struct{}]
	// returned are the returns that this process has stored lately, by the hash of job and minion.
	returned *generations[uint64, seenReturn]
	// newest is the time of the newest job that each minion has returned, in microseconds: a hint.
	newest *generations[job.Minion, int64]

	clampOnce sync.Once
	corrupt   atomic.Uint64
}

var _ tiers.Store = (*Store)(nil)

// Open makes a store and returns at once: the session is made in the background, and made again whenever
// it is lost. Errors are faults of the options.
func Open(o Options) (*Store, error) {
	if err := o.setDefaults(); err != nil {
		return nil, err
	}
	o.nodes, o.counts = newNodes(), &counts{}
	s := &Store{o: o, log: o.Logger.With("tier", tierName)}
	s.reads, s.writes = o.consistencies()
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.rows = newBatcher(s.ctx, rowLimits, s.sendRows)
	s.known = newKnown()
	s.days = newGenerations[dayKey, struct{}](4096)
	s.slots = newGenerations[slotKey, struct{}](4096)
	s.returned = newGenerations[uint64, seenReturn](seenReturns)
	s.newest = newGenerations[job.Minion, int64](knownJobs)
	s.link.down(errNotYet)
	s.loops.Go(s.keepSession)
	s.loops.Go(s.announceLosses)
	return s, nil
}

const tierName = "cassandra"

// Name implements tiers.Tier.
func (s *Store) Name() string { return tierName }

// Corrupt is how many stored values could not be read since Open. They count as missing.
func (s *Store) Corrupt() uint64 { return s.corrupt.Load() }

// Close ends the session. It does not wait for a connection that is being made and hangs.
func (s *Store) Close() error {
	s.cancel()
	s.loops.Wait()
	return nil
}

// Expire has nothing to do: every row was written with its time to live.
func (s *Store) Expire(context.Context, time.Time) (int, error) { return 0, nil }

// dropCorrupt counts a stored value that cannot be read, and says where it is.
func (s *Store) dropCorrupt(table string, jid job.JID, err error) {
	s.corrupt.Add(1)
	s.log.Warn("stored value is corrupt and counts as missing", "table", table, "jid", string(jid), "err", err)
}

func jitter(d time.Duration) time.Duration {
	return d/2 + time.Duration(rand.Float64()*float64(d)/2)
}
