package journal

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"saltern/job"
)

const (
	// windowEntries and windowBytes bound what the replay has in memory.
	windowEntries = 4096
	windowBytes   = 4 << 20
	// replayEntries and replayBytes bound one write of the replay.
	replayEntries = 256
	replayBytes   = 1 << 20
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
	pause, pace := retryFirst, newPace(s)
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.replay:
		}
		for s.ctx.Err() == nil {
			oldest := s.queue.oldest(windowEntries, windowBytes)
			if len(oldest) == 0 {
				pace.idle()
				s.report(false)
				break
			}
			if s.replayWindow(oldest, pace) {
				pause = retryFirst
				continue
			}
			s.report(true)
			s.sleep(pause/2 + rand.N(pause))
			pause = min(2*pause, retryMost)
		}
	}
}

// sendingEntry is an entry with its facts.
type sendingEntry struct {
	*entry
	facts []job.Fact
}

// replayWindow sends the oldest entries, those of one job together: where masters run many jobs at a time, their returns
// come mixed, and one by one each would be a write of its own to the store. It says whether the store is there.
func (s *Store) replayWindow(oldest []*entry, pace *pace) bool {
	window := make([]sendingEntry, 0, len(oldest))
	for _, e := range oldest {
		facts, err := s.log.read(e.seq)
		if err == nil {
			window = append(window, sendingEntry{e, facts})
		} else if !s.bury(e, facts, err) {
			return false
		}
	}
	slices.SortStableFunc(window, func(a, b sendingEntry) int {
		return cmp.Compare(a.facts[0].Job(), b.facts[0].Job())
	})
	for len(window) > 0 {
		n, bytes, most := 0, 0, pace.batch()
		for n < min(most, len(window)) && (n == 0 || bytes+window[n].size <= replayBytes) {
			bytes += window[n].size
			n++
		}
		start := time.Now()
		facts, ok := s.replayBatch(window[:n])
		if !ok || s.ctx.Err() != nil {
			return ok
		}
		pace.sent(facts, start)
		window = window[n:]
	}
	return true
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
func (s *Store) replayBatch(batch []sendingEntry) (int, bool) {
	var facts []job.Fact
	for _, e := range batch {
		facts = append(facts, e.facts...)
	}
	start := time.Now()
	err := s.merge(facts)
	if refused(err) && len(batch) > 1 {
		for i := range batch {
			if _, ok := s.replayBatch(batch[i : i+1]); !ok {
				return 0, false
			}
		}
		return len(facts), true
	}
	switch {
	case refused(err):
		return len(facts), s.bury(batch[0].entry, facts, err)
	case err != nil:
		s.o.Logger.Debug("replay failed", "store", s.under.Name(), "err", err)
		return 0, false
	default:
		firsts := make([]job.Fact, len(batch))
		for i, e := range batch {
			s.confirm(e.entry, e.facts)
			firsts[i] = e.facts[0]
		}
		s.o.OnReplay(firsts, time.Since(start))
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
