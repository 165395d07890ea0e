// Package journal keeps facts that were accepted and are not yet in the durable store, when that is
// a store elsewhere which can be away. It stands before the store and is a store itself:
//
//   - A write is appended to a log on this machine's disk, which is synced with all other writes of
//     that moment, and sent to the store at once. Options.Ack says which of the two acknowledges it.
//   - What the store did not take is replayed, oldest first, until it has it.
//   - What is in the log and not in the store is part of every read of a job. Reads of many jobs
//     wait for it, or say that they could not be answered; they never leave it out.
//   - An entry stays for Options.Retain after the store confirmed it, and is sent again after a
//     restart of this process or of the store (StoreLost): some stores acknowledge before their own
//     disk has it.
//
// Facts merge in any order and any number of times, which is what all of this rests on.
package journal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"saltern/job"
	"saltern/tiers"
)

// Ack says what acknowledges a write.
type Ack string

const (
	// AckStore: the store, or the log where the store cannot or does not in AckWait.
	AckStore Ack = "store"
	// AckJournal: the log; the store gets the fact at the same time.
	AckJournal Ack = "journal"
	// AckAll: both.
	AckAll Ack = "all"
)

// Options configure a Store. Zero fields take the defaults named.
type Options struct {
	// Dir is the folder of the log.
	Dir string
	// Under is the store.
	Under tiers.Store
	// Ack is what acknowledges a write; default AckStore.
	Ack Ack
	// AckWait is how long a write waits for the store before the log acknowledges it; default
	// 50 ms.
	AckWait time.Duration
	// WriteTimeout bounds one write to the store; default 10 s.
	WriteTimeout time.Duration
	// Retain is how long entries stay after the store confirmed them; default 30 s.
	Retain time.Duration
	// Quota bounds the log in bytes; default 1 GiB. Near it, writes that the store does not take
	// are refused.
	Quota int64
	// Reserve is the free disk space in bytes below which the log takes nothing more; default 64 MiB.
	Reserve int64
	// ReplayRate bounds the replay, in facts a second; default 20,000. It goes slower, down to a twentieth, where calls
	// beside it suffer.
	ReplayRate int
	// ListWait is how long a read of many jobs waits for the log to be in the store; default 2 s.
	ListWait time.Duration
	// BeforeResend is called before confirmed entries are sent again: what was remembered of the store
	// having them does not hold any more. Optional.
	BeforeResend func()
	// OnReplayed is told of facts that the store has at last, long after whoever keeps copies was told
	// of them. It must not block.
	OnReplayed func([]job.Fact)
	// OnReplay is told of each write of the replay: the first fact of each entry in it, and how long it
	// took. It must not block. Optional.
	OnReplay func(firsts []job.Fact, took time.Duration)
	// Now is the clock; default time.Now.
	Now func() time.Time
	// Logger takes changes of state; default slog.Default().
	Logger *slog.Logger
	// OnFatal is told, once, that the disk failed under the log. The process has to end, as it does
	// by default.
	OnFatal func(error)
	// FS is the file system; default vfs.Default.
	FS vfs.FS
}

func (o Options) withDefaults() Options {
	o.Ack = cmp.Or(o.Ack, AckStore)
	o.AckWait = cmp.Or(o.AckWait, 50*time.Millisecond)
	o.WriteTimeout = cmp.Or(o.WriteTimeout, 10*time.Second)
	o.Retain = cmp.Or(o.Retain, 30*time.Second)
	o.Quota = cmp.Or(o.Quota, 1<<30)
	o.ReplayRate = cmp.Or(o.ReplayRate, 20_000)
	o.ListWait = cmp.Or(o.ListWait, 2*time.Second)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.OnReplayed == nil {
		o.OnReplayed = func([]job.Fact) {}
	}
	if o.OnReplay == nil {
		o.OnReplay = func([]job.Fact, time.Duration) {}
	}
	if o.BeforeResend == nil {
		o.BeforeResend = func() {}
	}
	return o
}

// Store is a durable store behind a journal.
type Store struct {
	o     Options
	under tiers.Store
	log   *log
	queue queue
	index index

	ctx    context.Context // ends the loops
	cancel context.CancelFunc
	loops  sync.WaitGroup
	sends  sync.WaitGroup // writes on their way to the store
	live   live           // what the replay is beside of
	replay chan struct{}  // wakes the replay
	lost   chan struct{}  // wakes what sends again

	resending sync.Mutex // held while entries are made to wait again

	closing  sync.Once
	closeErr error
	rate     atomic.Int64 // facts a second of the last batches of the replay

	degraded atomic.Uint64 // reads answered from the log alone
	byStore  atomic.Uint64 // writes that the store acknowledged, alone or with the log
	byLog    atomic.Uint64 // writes that the log alone acknowledged
	replayed atomic.Uint64 // facts that the replay brought to the store
	dead     atomic.Int64  // entries that the store will never take
	suspects []job.JID     // jobs of the entries that were found
	waiting  atomic.Bool   // whether the log says that facts wait
}

var _ tiers.Store = (*Store)(nil)

// Open opens the log and takes up what it has: all of it is sent to the store again.
func Open(o Options) (*Store, error) {
	o = o.withDefaults()
	l, err := openLog(o)
	if err != nil {
		return nil, fmt.Errorf("journal in %s: %w", o.Dir, err)
	}
	s := &Store{o: o, under: o.Under, log: l, replay: make(chan struct{}, 1), lost: make(chan struct{}, 1)}
	s.queue.init()
	s.index.init(o.Now())
	if err := s.recover(); err != nil {
		return nil, errors.Join(fmt.Errorf("journal in %s: %w", o.Dir, err), l.close())
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.loops.Go(s.replayLoop)
	s.loops.Go(s.trimLoop)
	s.loops.Go(s.lostLoop)
	return s, nil
}

// recover puts every entry of the log into the queue and the index.
func (s *Store) recover() error {
	entries, suspects := 0, make(map[job.JID]struct{})
	err := s.log.scan(func(seq uint64, size int, facts []job.Fact) {
		if entries == 0 {
			// What this log knew before its first entry is not known any more.
			s.index.init(beginOf(facts[0]))
		}
		e := s.queue.restore(seq, size, len(facts), s.o.Now())
		s.index.add(e, facts)
		entries++
		for _, jid := range jobsOf(facts) {
			suspects[jid] = struct{}{}
		}
	})
	s.suspects = slices.Collect(maps.Keys(suspects))
	if err != nil {
		return err
	}
	n, err := s.log.countDead()
	s.dead.Store(int64(n))
	if entries > 0 {
		s.o.Logger.Info("journal found, it is sent to the store again", "entries", entries, "store", s.under.Name())
	}
	return err
}

// beginOf is the time from which a log knows everything whose first fact is f: of a publish, which is
// the first fact of its job, the time of the job.
func beginOf(f job.Fact) time.Time {
	begin := f.Stamp().Time()
	if l, is := f.(job.Load); is && l.Rank == job.RankPublish {
		if born, own := l.JID.Time(); own && born.Before(begin) {
			return born
		}
	}
	return begin
}

// Name is the name of the store behind it.
func (s *Store) Name() string { return s.under.Name() }

// Close stops the replay, waits for writes on their way and closes the log and the store. What is
// not in the store stays in the log. Further calls do nothing.
func (s *Store) Close() error {
	s.closing.Do(func() {
		s.cancel()
		s.loops.Wait()
		s.sends.Wait()
		s.closeErr = errors.Join(s.log.close(), s.under.Close())
	})
	return s.closeErr
}

// Status is what the journal holds.
type Status struct {
	// Entries wait for the store, with Facts facts in them; the oldest came at Oldest.
	Entries int
	Facts   int
	Oldest  time.Time
	// Bytes is the size of the log, entries that are retained included, of Quota.
	Bytes int64
	Quota int64
	// Rate is how many facts a second the replay sent lately.
	Rate int64
	// Dead is the number of entries that the store refused for ever.
	Dead int64
	// Degraded is the number of reads answered from the log alone.
	Degraded uint64
	// ByStore and ByLog are the numbers of writes that were acknowledged: by the store, or by the log
	// alone. Replayed is the number of facts that the store got later.
	ByStore, ByLog, Replayed uint64
}

// Status says what the journal holds now.
func (s *Store) Status() Status {
	st := s.queue.status()
	st.Quota, st.Rate, st.Dead, st.Degraded = s.o.Quota, s.rate.Load(), s.dead.Load(), s.degraded.Load()
	st.ByStore, st.ByLog, st.Replayed = s.byStore.Load(), s.byLog.Load(), s.replayed.Load()
	return st
}

// The notes of a proxy about its shared tiers (proxy.Notes). What a shared tier missed is covered by
// the entries of the log as long as those are retained; SetDirty is on the disk before that.

// Suspects are the jobs of the entries that were found when the journal was opened.
func (s *Store) Suspects() []job.JID { return s.suspects }

// Dirty says whether SetDirty was last called with true for a tier, also before a restart.
func (s *Store) Dirty(tier string) bool {
	dirty, err := s.log.flag(tier)
	if err != nil {
		s.o.Logger.Warn("notes not read; the tier is taken not to have everything", "tier", tier, "err", err)
		return true
	}
	return dirty
}

// SetDirty notes whether a shared tier may lack what the store has.
func (s *Store) SetDirty(tier string, dirty bool) {
	if err := s.log.setFlag(tier, dirty); err != nil {
		s.o.Logger.Warn("notes not written", "tier", tier, "err", err)
	}
}
