package journal_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"saltern/job"
	"saltern/proxy/journal"
	"saltern/tiers"
	"saltern/tiers/embedded"
)

// remote is a durable store that can be away.
type remote struct {
	tiers.Store
	mu   sync.Mutex
	err  error         // what every call answers; nil for the store's own answer
	hang chan struct{} // what every call waits for first
	sent [][]job.Fact  // what Merge was given and took
}

func (r *remote) set(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
}

// stop makes the store hang; the function that it gives lets it go on.
func (r *remote) stop() (goOn func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	hang := make(chan struct{})
	r.hang = hang
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.hang = nil
		close(hang)
	}
}

func (r *remote) gate(ctx context.Context) error {
	r.mu.Lock()
	err, hang := r.err, r.hang
	r.mu.Unlock()
	if hang != nil {
		select {
		case <-hang:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", tiers.ErrTimeout, ctx.Err())
		}
	}
	return err
}

func (r *remote) Head(ctx context.Context, jid job.JID) (job.Head, error) {
	if err := r.gate(ctx); err != nil {
		return job.Head{}, err
	}
	return r.Store.Head(ctx, jid)
}

func (r *remote) Returns(ctx context.Context, jid job.JID, q tiers.ReturnQuery) (tiers.ReturnPage, error) {
	if err := r.gate(ctx); err != nil {
		return tiers.ReturnPage{}, err
	}
	return r.Store.Returns(ctx, jid, q)
}

func (r *remote) Merge(ctx context.Context, facts []job.Fact) ([]job.Outcome, error) {
	if err := r.gate(ctx); err != nil {
		return nil, err
	}
	r.mu.Lock()
	r.sent = append(r.sent, facts)
	r.mu.Unlock()
	return r.Store.Merge(ctx, facts)
}

func (r *remote) List(ctx context.Context, f tiers.Filter) (tiers.ListPage, error) {
	if err := r.gate(ctx); err != nil {
		return tiers.ListPage{}, err
	}
	return r.Store.List(ctx, f)
}

func (r *remote) Close() error { return nil } // it outlives a journal

var errAway = fmt.Errorf("%w: refused connection", tiers.ErrUnavailable)

func newRemote(t *testing.T) *remote {
	t.Helper()
	s, err := embedded.Open(embedded.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return &remote{Store: s}
}

func open(t *testing.T, o journal.Options) *journal.Store {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	o.Logger = slog.New(slog.DiscardHandler)
	s, err := journal.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// reopen is a restart of the process.
func reopen(t *testing.T, s *journal.Store, o journal.Options) *journal.Store {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return open(t, o)
}

var clock = job.NewClock(1, time.Now)

func publish(jid job.JID, minions ...job.Minion) []job.Fact {
	v := clock.Next()
	return []job.Fact{
		job.Load{
			JID: jid, Version: v, Rank: job.RankPublish, Fun: "test.ping", Target: "web*", TargetType: "glob",
			User: "sudo_alice", Keep: job.KeepUnset, Payload: []byte{0x81, 0xa1, 'a', 0x01},
		},
		job.Minions{JID: jid, Version: v, IDs: minions, Keep: job.KeepUnset},
	}
}

func ret(jid job.JID, minion job.Minion, value byte) job.Return {
	return job.Return{
		JID: jid, Minion: minion, Version: clock.Next(), Fun: "test.ping", Keep: job.KeepUnset,
		Ret: []byte{value}, Rest: []byte{0x80}, Times: []byte{0x80},
	}
}

func merge(t *testing.T, s tiers.Tier, facts ...job.Fact) {
	t.Helper()
	if _, err := s.Merge(t.Context(), facts); err != nil {
		t.Fatalf("a write was not acknowledged: %v", err)
	}
}

// wantJob checks what a reader sees of a job: its target and the values of its returns.
func wantJob(t *testing.T, s tiers.Tier, jid job.JID, returns map[job.Minion]byte) {
	t.Helper()
	h, err := s.Head(t.Context(), jid)
	if err != nil {
		t.Fatalf("head of %s: %v", jid, err)
	}
	if h.Load == nil || h.Load.Target != "web*" || h.Load.Rank != job.RankPublish {
		t.Errorf("load of %s is %+v", jid, h.Load)
	}
	page, err := s.Returns(t.Context(), jid, tiers.ReturnQuery{})
	if err != nil {
		t.Fatalf("returns of %s: %v", jid, err)
	}
	got := map[job.Minion]byte{}
	for _, r := range page.Returns {
		got[r.Minion] = r.Ret[0]
	}
	if fmt.Sprint(got) != fmt.Sprint(returns) {
		t.Errorf("returns of %s are %v, want %v", jid, got, returns)
	}
}

// drained waits until the store has all.
func drained(t *testing.T, s *journal.Store) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for s.Status().Entries > 0 {
		if time.Now().After(deadline) {
			t.Fatalf("the journal did not drain: %+v", s.Status())
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func newJID() job.JID {
	return job.NewJID(clock.Next().Time().Add(time.Duration(jids.next()) * time.Microsecond))
}

type counter struct {
	mu sync.Mutex
	n  int
}

func (c *counter) next() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	return c.n
}

var jids counter

// The kind of S03: with the store away jobs are accepted and read, and afterwards the store has
// them.
func TestStoreAway(t *testing.T) {
	r := newRemote(t)
	s := open(t, journal.Options{Under: r})
	before := newJID()
	merge(t, s, publish(before, "alpha", "beta")...)
	merge(t, s, ret(before, "alpha", 1))
	r.set(errAway)
	during := newJID()
	merge(t, s, publish(during, "alpha")...)
	merge(t, s, ret(during, "alpha", 2))
	merge(t, s, ret(before, "beta", 3))

	wantJob(t, s, during, map[job.Minion]byte{"alpha": 2})
	// Of this one the log has a part: what the store would say is not known.
	if _, err := s.Head(t.Context(), before); !errors.Is(err, tiers.ErrUnavailable) {
		t.Errorf("head of a job that is not whole in the log: %v", err)
	}
	if _, err := s.Head(t.Context(), newJID()); !errors.Is(err, tiers.ErrUnavailable) {
		t.Errorf("head of an unknown job: %v, which is not for us to say", err)
	}
	if st := s.Status(); st.Entries != 3 || st.Facts != 4 || st.Oldest.IsZero() || st.Degraded == 0 {
		t.Errorf("status %+v", st)
	}

	r.set(nil)
	drained(t, s)
	wantJob(t, r, before, map[job.Minion]byte{"alpha": 1, "beta": 3})
	wantJob(t, r, during, map[job.Minion]byte{"alpha": 2})
	if _, err := s.Head(t.Context(), newJID()); !errors.Is(err, tiers.ErrNotFound) {
		t.Errorf("head of an unknown job: %v", err)
	}
}

// A list leaves nothing out: it waits for the log, or says that it cannot answer.
func TestListsWaitForTheLog(t *testing.T) {
	r := newRemote(t)
	s := open(t, journal.Options{Under: r, ListWait: 50 * time.Millisecond})
	r.set(errAway)
	jid := newJID()
	merge(t, s, publish(jid, "alpha")...)
	if page, err := s.List(t.Context(), tiers.Filter{}); !errors.Is(err, tiers.ErrUnavailable) {
		t.Errorf("list with a job in the log alone: %v, %v", page, err)
	}
	r.set(nil)
	drained(t, s)
	page, err := s.List(t.Context(), tiers.Filter{})
	if err != nil || len(page.Jobs) != 1 || page.Jobs[0].JID != jid {
		t.Errorf("list: %+v, %v", page, err)
	}
}

func TestHungStoreDoesNotHoldUpWrites(t *testing.T) {
	r := newRemote(t)
	s := open(t, journal.Options{Under: r, AckWait: time.Millisecond})
	goOn := r.stop()
	jid := newJID()
	for i := range 50 {
		merge(t, s, ret(jid, job.Minion(fmt.Sprintf("m%02d", i)), byte(i)))
	}
	merge(t, s, publish(jid, "m00")...)
	goOn()
	drained(t, s)
	page, err := r.Returns(t.Context(), jid, tiers.ReturnQuery{})
	if err != nil || len(page.Returns) != 50 {
		t.Errorf("%d returns in the store, %v", len(page.Returns), err)
	}
}

// What waits survives the process, and the first of two returns stays the first.
func TestRestartReplays(t *testing.T) {
	r := newRemote(t)
	o := journal.Options{Under: r, Dir: t.TempDir()}
	s := open(t, o)
	r.set(errAway)
	jid := newJID()
	merge(t, s, publish(jid, "alpha")...)
	merge(t, s, ret(jid, "alpha", 1))
	merge(t, s, ret(jid, "alpha", 2))
	s = reopen(t, s, o)
	wantJob(t, s, jid, map[job.Minion]byte{"alpha": 1})
	r.set(nil)
	drained(t, s)
	wantJob(t, r, jid, map[job.Minion]byte{"alpha": 1})
}

// Cassandra acknowledges before its own disk has what it was given: what it confirmed is sent again
// after a restart within Retain, and not after that.
func TestConfirmedEntriesAreRetained(t *testing.T) {
	r := newRemote(t)
	o := journal.Options{Under: r, Dir: t.TempDir(), Retain: time.Hour}
	s := open(t, o)
	jid := newJID()
	merge(t, s, publish(jid, "alpha")...)
	drained(t, s)
	forgetful := newRemote(t)
	o.Under = forgetful
	s = reopen(t, s, o)
	drained(t, s)
	wantJob(t, forgetful, jid, map[job.Minion]byte{})

	o.Retain = time.Nanosecond
	s = reopen(t, s, o)
	drained(t, s)
	for deadline := time.Now().Add(10 * time.Second); s.Status().Bytes > 0; {
		if time.Now().After(deadline) {
			t.Fatalf("not trimmed: %+v", s.Status())
		}
		time.Sleep(10 * time.Millisecond)
	}
	empty := newRemote(t)
	o.Under = empty
	s = reopen(t, s, o)
	drained(t, s)
	if len(empty.sent) != 0 {
		t.Errorf("trimmed entries were sent again: %v", empty.sent)
	}
}

func TestAckAllNeedsTheStore(t *testing.T) {
	r := newRemote(t)
	s := open(t, journal.Options{Under: r, Ack: journal.AckAll})
	r.set(errAway)
	jid := newJID()
	if _, err := s.Merge(t.Context(), publish(jid, "alpha")); !errors.Is(err, tiers.ErrUnavailable) {
		t.Errorf("acknowledged by the log alone: %v", err)
	}
	r.set(nil)
	drained(t, s)
	wantJob(t, r, jid, map[job.Minion]byte{})
}

func TestQuotaRefusesWhatTheStoreDoesNotTake(t *testing.T) {
	r := newRemote(t)
	s := open(t, journal.Options{Under: r, Quota: 2000, Retain: time.Nanosecond})
	r.set(errAway)
	var err error
	accepted := 0
	for ; err == nil && accepted < 100; accepted++ {
		_, err = s.Merge(t.Context(), publish(newJID(), "alpha"))
	}
	if !errors.Is(err, tiers.ErrFull) {
		t.Fatalf("after %d writes: %v", accepted, err)
	}
	if st := s.Status(); st.Bytes > st.Quota || st.Entries != accepted-1 {
		t.Errorf("status %+v after %d accepted", st, accepted-1)
	}
	r.set(nil)
	drained(t, s)
	merge(t, s, publish(newJID(), "alpha")...)
}

// What the store will never take is refused to whoever sent it, and kept out of the way of the rest
// when it was accepted before.
func TestRefusedForEver(t *testing.T) {
	r := newRemote(t)
	s := open(t, journal.Options{Under: r})
	tooLarge := fmt.Errorf("%w: 20 MiB", tiers.ErrTooLarge)
	r.set(tooLarge)
	if _, err := s.Merge(t.Context(), publish(newJID(), "alpha")); !errors.Is(err, tiers.ErrTooLarge) {
		t.Errorf("refused with %v", err)
	}
	r.set(errAway)
	merge(t, s, publish(newJID(), "alpha")...)
	r.set(tooLarge)
	drained(t, s)
	if st := s.Status(); st.Dead != 1 {
		t.Errorf("status %+v", st)
	}
	dead, err := s.Dead()
	if err != nil || len(dead) != 1 || dead[0].Facts != 2 || len(dead[0].Jobs) != 1 || dead[0].Reason == "" {
		t.Fatalf("put aside: %+v, %v", dead, err)
	}
	if err := s.Discard(dead[0].Seq + 1); !errors.Is(err, tiers.ErrNotFound) {
		t.Errorf("discarded what is not there: %v", err)
	}
	if err := s.Discard(dead[0].Seq); err != nil {
		t.Error(err)
	}
	if dead, err := s.Dead(); err != nil || len(dead) != 0 || s.Status().Dead != 0 {
		t.Errorf("after discarding it: %+v, %v", dead, err)
	}
}

// A reader never misses what was acknowledged, while the store comes and goes.
func TestReadsSeeAcknowledgedWrites(t *testing.T) {
	r := newRemote(t)
	s := open(t, journal.Options{Under: r, AckWait: time.Millisecond})
	stop := make(chan struct{})
	var flaps sync.WaitGroup
	flaps.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				r.set(nil)
				return
			case <-time.After(time.Millisecond):
			}
			if i%2 == 0 {
				r.set(errAway)
			} else {
				r.set(nil)
			}
		}
	})
	var writers sync.WaitGroup
	for w := range 8 {
		writers.Go(func() {
			for range 50 {
				jid := newJID()
				facts := append(publish(jid, "alpha"), ret(jid, "alpha", byte(w)))
				if _, err := s.Merge(t.Context(), facts); err != nil {
					t.Errorf("write: %v", err)
					return
				}
				h, err := s.Head(t.Context(), jid)
				if errors.Is(err, tiers.ErrUnavailable) {
					continue // could not be asked; that is not "not found"
				}
				if err != nil || h.Load == nil {
					t.Errorf("an acknowledged job is %+v, %v", h, err)
				}
			}
		})
	}
	writers.Wait()
	close(stop)
	flaps.Wait()
	drained(t, s)
}

func TestEntriesAndResend(t *testing.T) {
	r := newRemote(t)
	s := open(t, journal.Options{Under: r, Retain: time.Hour})
	jid := newJID()
	merge(t, s, publish(jid, "alpha")...)
	drained(t, s)
	r.set(errAway)
	merge(t, s, ret(jid, "alpha", 1))
	all, err := s.Entries(0, 10)
	if err != nil || len(all) != 2 {
		t.Fatalf("entries: %+v, %v", all, err)
	}
	if all[0].State != "confirmed" || all[0].Facts != 2 || all[1].State == "confirmed" ||
		len(all[1].Jobs) != 1 || all[1].Jobs[0] != jid {
		t.Errorf("entries: %+v", all)
	}
	if next, err := s.Entries(all[0].Seq, 1); err != nil || len(next) != 1 || next[0].Seq != all[1].Seq {
		t.Errorf("the page after the first: %+v, %v", next, err)
	}
	r.set(nil)
	drained(t, s)
	sent := len(r.sent)
	if n := s.Resend(time.Now().Add(time.Hour)); n != 0 {
		t.Errorf("%d entries of the future are sent again", n)
	}
	if n := s.Resend(time.Time{}); n != 2 {
		t.Errorf("%d of 2 retained entries are sent again", n)
	}
	drained(t, s)
	if len(r.sent) == sent {
		t.Error("nothing was sent again")
	}
	wantJob(t, r, jid, map[job.Minion]byte{"alpha": 1})
}

// fastClock is a clock of which each look is a second later: what was looked at is never still true.
func fastClock() func() time.Time {
	var c counter
	start := time.Now()
	return func() time.Time { return start.Add(time.Duration(c.next()) * time.Second) }
}
