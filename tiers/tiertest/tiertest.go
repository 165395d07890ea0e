// Package tiertest is the suite that every tier passes: it is what the contract in package tiers says,
// as tests. A tier that is a cache (tiers.Filler and no Store) is filled first; one that is a Store
// is tried for lists, events, retention and registers too.
package tiertest

import (
	"os"
	"sync/atomic"
	"testing"
	"time"

	"saltern/job"
	"saltern/tiers"
)

// Option is one ability of a tier's opener that Run makes use of.
type Option func(*suite)

// Reopen says how to close a durable tier and to open it again on the same data. Run then tries
// that everything is still there.
func Reopen(reopen func(t *testing.T, old tiers.Tier) tiers.Tier) Option {
	return func(s *suite) { s.reopen = reopen }
}

// OutcomesAreHints is for a store that does not read before it writes. Of a repeat in every detail it may say
// Stored, of several first writers at once it may tell none that it created the job, and a return to a job
// without a cache that it has not met since it was opened is Stored, and never read.
func OutcomesAreHints() Option { return func(s *suite) { s.hints = true } }

// ExpiresByItself is for a store that takes the time from a clock that is not the caller's: what has passed its
// time is tried elsewhere.
func ExpiresByItself() Option { return func(s *suite) { s.expiresByItself = true } }

// Run runs the suite. open gives an empty tier, with room for a job of 16 MiB in a cache; it is called
// for every sub-test, and what it gives is closed by Run. The tests take seconds; with the
// environment variable SALTERN_LONG=1 large jobs are larger.
func Run(t *testing.T, open func(t *testing.T) tiers.Tier, options ...Option) {
	s := &suite{open: open}
	for _, o := range options {
		o(s)
	}
	t.Run("Merge", s.testMerge)
	t.Run("Returns", s.testReturns)
	t.Run("Identifiers", s.testIdentifiers)
	t.Run("Payloads", s.testPayloads)
	t.Run("Concurrency", s.testConcurrency)
	t.Run("Context", s.testContext)
	probe := s.start(t)
	if probe.filler != nil {
		t.Run("Cache", s.testCache)
	}
	if probe.store != nil {
		t.Run("Store", s.testStore)
		t.Run("List", s.testList)
		t.Run("Events", s.testEvents)
		t.Run("LastFunctions", s.testLastFunctions)
		t.Run("Expire", s.testExpire)
		t.Run("Registers", s.testRegisters)
	}
	if s.reopen != nil {
		t.Run("Reopen", s.testReopen)
	}
}

type suite struct {
	open   func(t *testing.T) tiers.Tier
	reopen func(t *testing.T, old tiers.Tier) tiers.Tier

	hints, expiresByItself bool
}

// long says whether tests may take minutes.
func long() bool { return os.Getenv("SALTERN_LONG") == "1" }

// subject is one tier under test.
type subject struct {
	tiers.Tier
	filler tiers.Filler // the tier, where it is a cache
	store  tiers.Store  // the tier, where it is a store
	hints  bool         // see OutcomesAreHints

	// base is the time of the first jid. It is of today, so that no retention removes a job.
	base  time.Time
	taken atomic.Int64
}

// start opens a tier for a test, which ends with its closing.
func (s *suite) start(t *testing.T) *subject {
	t.Helper()
	u := &subject{hints: s.hints, base: time.Now().UTC().Add(-time.Minute).Truncate(time.Second)}
	u.use(s.open(t))
	t.Cleanup(func() {
		if err := u.Close(); err != nil {
			t.Errorf("Close() = %v", err)
		}
	})
	return u
}

func (u *subject) use(tier tiers.Tier) {
	u.Tier = tier
	u.store, _ = tier.(tiers.Store)
	u.filler = nil
	if u.store == nil {
		u.filler, _ = tier.(tiers.Filler)
	}
}

// run runs a sub-test on a tier of its own.
func (s *suite) run(t *testing.T, name string, f func(t *testing.T, u *subject)) {
	t.Run(name, func(t *testing.T) { f(t, s.start(t)) })
}

// jid gives a jid that was not given before, later than those given.
func (u *subject) jid() job.JID {
	return job.NewJID(u.base.Add(time.Duration(u.taken.Add(1)) * time.Microsecond))
}

// version gives the nth version of the suite's time.
func (u *subject) version(n int) job.Version {
	return job.VersionAt(u.base) + job.Version(n)<<10
}
