package journal

import (
	"context"
	"math/rand/v2"
	"time"

	"saltern/job"
)

const (
	// replayFacts and replayBytes bound one write of the replay.
	replayFacts = 256
	replayBytes = 1 << 20
	// retryFirst and retryMost are the pauses after writes of the replay that failed: doubled each
	// time, with jitter.
	retryFirst = 100 * time.Millisecond
	retryMost  = 3 * time.Second
	// trimEvery is how often entries that were retained long enough are removed.
	trimEvery = time.Second
)

// wake makes the replay look for waiting entries.
func (s *Store) wake() {
	select {
	case s.replay <- struct{}{}:
	default: // it will look
	}
}

// replayLoop sends waiting entries to the store, oldest first.
func (s *Store) replayLoop() {
	s.wake()
	pause := retryFirst
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.replay:
		}
		for s.ctx.Err() == nil {
			batch := s.queue.oldest(replayFacts, replayBytes)
			if len(batch) == 0 {
				s.rate.Store(0)
				s.report(false)
				break
			}
			start := time.Now()
			n, ok := s.replayBatch(batch)
			if ok {
				pause = retryFirst
				s.pace(n, time.Since(start))
				continue
			}
			s.report(true)
			s.sleep(pause/2 + rand.N(pause))
			pause = min(2*pause, retryMost)
		}
	}
}

// report says once when facts begin to wait for the store and when they no longer do.
func (s *Store) report(waits bool) {
	if s.waiting.Swap(waits) == waits {
		return
	}
	if waits {
		s.o.Logger.Warn("the store does not take writes; they wait in the journal", "store", s.under.Name())
		return
	}
	s.o.Logger.Info("the store has all that waited in the journal", "store", s.under.Name())
}

// replayBatch sends entries as one write and gives the number of facts and whether the store is
// there. Entries that it refuses for ever are found one by one and put aside.
func (s *Store) replayBatch(batch []*entry) (int, bool) {
	var facts []job.Fact
	byEntry := make([][]job.Fact, len(batch))
	for i, e := range batch {
		f, err := s.log.read(e.seq)
		if err != nil {
			// Of one that is corrupt the others are sent with the next batch.
			return 0, s.bury(e, f, err)
		}
		byEntry[i] = f
		facts = append(facts, f...)
	}
	err := s.merge(facts)
	if refused(err) && len(batch) > 1 {
		for _, e := range batch {
			if _, ok := s.replayBatch([]*entry{e}); !ok {
				return 0, false
			}
		}
		return len(facts), true
	}
	switch {
	case refused(err):
		return len(facts), s.bury(batch[0], facts, err)
	case err != nil:
		s.o.Logger.Debug("replay failed", "store", s.under.Name(), "err", err)
		return 0, false
	default:
		for i, e := range batch {
			s.confirm(e, byEntry[i])
		}
		s.replayed.Add(uint64(len(facts)))
		s.o.OnReplayed(facts)
	}
	return len(facts), true
}

func (s *Store) merge(facts []job.Fact) error {
	if len(facts) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(s.ctx, s.o.WriteTimeout)
	defer cancel()
	_, err := s.under.Merge(ctx, facts)
	return err
}

// bury puts an entry aside that the store will never take, so that those after it go on. It says
// whether that could be done.
func (s *Store) bury(e *entry, facts []job.Fact, cause error) bool {
	s.o.Logger.Error("the store will never take an entry of the journal; it is put aside (saltern journal list)",
		"entry", e.seq, "facts", e.count, "store", s.under.Name(), "err", cause)
	if err := s.log.bury(e.seq, cause.Error()); err != nil {
		s.o.Logger.Error("entry not put aside", "entry", e.seq, "err", err)
		return false
	}
	s.dead.Add(1)
	s.confirm(e, facts)
	return true
}

// pace holds the replay to its rate.
func (s *Store) pace(facts int, took time.Duration) {
	least := time.Duration(facts) * time.Second / time.Duration(s.o.ReplayRate)
	if took < least {
		s.sleep(least - took)
		took = least
	}
	if took > 0 {
		s.rate.Store(int64(float64(facts) / took.Seconds()))
	}
}

func (s *Store) sleep(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-s.ctx.Done():
	}
}

// trimLoop removes entries that were retained long enough.
func (s *Store) trimLoop() {
	tick := time.NewTicker(trimEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-tick.C:
		}
		if first := s.queue.trim(s.o.Now().Add(-s.o.Retain)); first > 0 {
			if err := s.log.trim(first); err != nil {
				s.o.Logger.Warn("journal not trimmed", "err", err)
			}
		}
	}
}

// lostLoop sends what is retained again when the store may have lost it.
func (s *Store) lostLoop() {
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.lost:
		}
		if n := s.Resend(time.Time{}); n > 0 {
			s.o.Logger.Info("the store went away and may have lost what it confirmed last, which is sent again",
				"entries", n, "store", s.under.Name())
		}
	}
}
