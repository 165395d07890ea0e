package journal_test

import (
	"errors"
	"testing"
	"time"

	"saltern/job"
	"saltern/proxy/journal"
	"saltern/tiers"
)

// A Cassandra that is killed comes back without what it confirmed last: readers miss nothing of it, neither
// while it is away nor afterwards.
func TestStoreThatLostWhatItConfirmed(t *testing.T) {
	unlearned := make(chan struct{}, 1)
	r := newRemote(t)
	s := open(t, journal.Options{
		Under: r, ListWait: 50 * time.Millisecond, BeforeResend: func() { unlearned <- struct{}{} },
	})
	jid := newJID()
	merge(t, s, publish(jid, "alpha")...)
	merge(t, s, ret(jid, "alpha", 1))
	drained(t, s)

	r.set(errAway)
	r.replace(newRemote(t).Store)
	s.StoreLost()
	<-unlearned
	eventuallyWaits(t, s)
	if page, err := s.List(t.Context(), tiers.Filter{}); !errors.Is(err, tiers.ErrUnavailable) {
		t.Errorf("list while it is not known what was lost: %v, %v", page, err)
	}
	// It is back, and the replay has not come to the job yet.
	r.set(nil)
	wantJob(t, s, jid, map[job.Minion]byte{"alpha": 1})
	drained(t, s)
	wantJob(t, r, jid, map[job.Minion]byte{"alpha": 1})
	wantJob(t, s, jid, map[job.Minion]byte{"alpha": 1})
	if _, err := s.Head(t.Context(), newJID()); !errors.Is(err, tiers.ErrNotFound) {
		t.Errorf("a job that there never was: %v", err)
	}
}

// replace gives the remote another store, as one that lost everything.
func (r *remote) replace(store tiers.Store) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Store = store
}

func eventuallyWaits(t *testing.T, s *journal.Store) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); s.Status().Facts < 3; {
		if time.Now().After(deadline) {
			t.Fatalf("what may be lost does not wait: %+v", s.Status())
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// A read of what the log can answer for does not wait for a store that hangs.
func TestHungStoreDoesNotHoldUpReadsOfTheLog(t *testing.T) {
	r := newRemote(t)
	s := open(t, journal.Options{Under: r, AckWait: time.Millisecond})
	goOn := r.stop()
	jid := newJID()
	merge(t, s, publish(jid, "alpha")...)
	merge(t, s, ret(jid, "alpha", 1))
	wantJob(t, s, jid, map[job.Minion]byte{"alpha": 1}) // it would hang
	goOn()
	drained(t, s)
}

// The publish that begins a log is the first of its job, though the jid is older than the fact.
func TestRestartKnowsTheJobThatBeginsTheLog(t *testing.T) {
	r := newRemote(t)
	o := journal.Options{Under: r, Dir: t.TempDir()}
	s := open(t, o)
	r.set(errAway)
	jid := job.NewJID(time.Now().Add(-5 * time.Millisecond))
	merge(t, s, publish(jid, "alpha")...)
	s = reopen(t, s, o)
	wantJob(t, s, jid, map[job.Minion]byte{})
	r.set(nil)
	drained(t, s)
}
