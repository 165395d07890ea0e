package journal

import (
	"fmt"
	"time"

	"saltern/job"
	"saltern/tiers"
)

// Entry is an entry as people look at it. It has no payload.
type Entry struct {
	Seq   uint64
	At    time.Time // when it came; after a restart, when the journal was opened; zero when put aside
	Facts int
	Bytes int
	// State is "sending", "waiting", "confirmed" or "dead".
	State string
	// Jobs are those that its facts belong to, each once; events belong to none.
	Jobs []job.JID
	// Reason is why the store will never take it.
	Reason string
}

var stateNames = [...]string{"sending", "waiting", "confirmed"}

// Entries gives up to n entries after the one with the number after, oldest first.
func (s *Store) Entries(after uint64, n int) ([]Entry, error) {
	var out []Entry
	for _, e := range s.queue.after(after, n) {
		facts := e.facts
		if facts == nil {
			var err error
			if facts, err = s.log.read(e.seq); err != nil {
				return nil, fmt.Errorf("%w: %w", tiers.ErrUnavailable, err)
			}
		}
		out = append(out, Entry{
			Seq: e.seq, At: e.at, Facts: e.count, Bytes: e.size, State: stateNames[e.state], Jobs: jobsOf(facts),
		})
	}
	return out, nil
}

func jobsOf(facts []job.Fact) []job.JID {
	var out []job.JID
	seen := map[job.JID]bool{"": true}
	for _, f := range facts {
		if jid := f.Job(); !seen[jid] {
			seen[jid] = true
			out = append(out, jid)
		}
	}
	return out
}

// Dead gives the entries that the store refused for ever.
func (s *Store) Dead() ([]Entry, error) {
	var out []Entry
	err := s.log.eachDead(func(seq uint64, reason string, size int, facts []job.Fact) {
		out = append(out, Entry{
			Seq: seq, Facts: len(facts), Bytes: size, State: "dead", Jobs: jobsOf(facts), Reason: reason,
		})
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", tiers.ErrUnavailable, err)
	}
	return out, nil
}

// Discard removes an entry that the store refused for ever; its facts are lost. ErrNotFound means
// that there is none of that number.
func (s *Store) Discard(seq uint64) error {
	there, err := s.log.discardDead(seq)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", tiers.ErrUnavailable, err)
	case !there:
		return fmt.Errorf("%w: no entry %d was put aside", tiers.ErrNotFound, seq)
	}
	s.dead.Add(-1)
	return nil
}

// Resend sends the retained entries that came at or after since to the store again, for a store that
// lost what it had confirmed, and gives their number. Until it has them they are part of every read.
func (s *Store) Resend(since time.Time) int {
	s.resending.Lock()
	defer s.resending.Unlock()
	s.o.BeforeResend()
	n := 0
	for _, e := range s.queue.retained(since) {
		facts, err := s.log.read(e.seq)
		if err != nil {
			// The replay puts it aside.
			s.o.Logger.Error("entry of the journal cannot be read", "entry", e.seq, "err", err)
		}
		// The index first: the replay may confirm the entry as soon as it waits.
		s.index.add(e, facts)
		if !s.queue.reopen(e) {
			s.index.remove(e, facts, s.o.Now())
			continue
		}
		n++
	}
	s.wake()
	return n
}

// StoreLost says that the store, or a part of it, went away and may have lost what it confirmed last:
// all that is retained is sent again. It does not wait.
func (s *Store) StoreLost() {
	select {
	case s.lost <- struct{}{}:
	default: // it will be seen to
	}
}

// Pending is how many facts of a job wait for the store.
func (s *Store) Pending(jid job.JID) int { return s.index.pending(jid) }
