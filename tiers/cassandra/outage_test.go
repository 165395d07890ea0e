package cassandra_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"saltern/job"
	"saltern/testbed"
	"saltern/tiers"
	"saltern/tiers/cassandra"
)

// TestOpenDoesNotWait: a daemon starts while Cassandra is away, says why it cannot ask, and keeps trying.
func TestOpenDoesNotWait(t *testing.T) {
	ports, err := testbed.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	s, err := cassandra.Open(cassandra.Options{Hosts: []string{(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: ports[0]}).String()}})
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took > time.Second {
		t.Errorf("Open took %v", took)
	}
	if err := s.Ready(); !errors.Is(err, tiers.ErrUnavailable) {
		t.Errorf("Ready = %v; want ErrUnavailable", err)
	}
	everyCallSays(t, s, tiers.ErrUnavailable)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// everyCallSays makes each call and wants its error to be of a kind: never an empty answer.
func everyCallSays(t *testing.T, s *cassandra.Store, want error) {
	t.Helper()
	jid := newJID()
	for name, call := range map[string]func(context.Context) error{
		"Head":          func(ctx context.Context) error { _, err := s.Head(ctx, jid); return err },
		"Returns":       func(ctx context.Context) error { _, err := s.Returns(ctx, jid, tiers.ReturnQuery{}); return err },
		"Merge":         func(ctx context.Context) error { _, err := s.Merge(ctx, []job.Fact{publish(jid, 86400)}); return err },
		"List":          func(ctx context.Context) error { _, err := s.List(ctx, tiers.Filter{}); return err },
		"Events":        func(ctx context.Context) error { _, err := s.Events(ctx, tiers.EventQuery{}); return err },
		"LastFunctions": func(ctx context.Context) error { _, err := s.LastFunctions(ctx, ""); return err },
		"SaveRegister":  func(ctx context.Context) error { return s.SaveRegister(ctx, "m1", []byte{1}) },
		"LoadRegister":  func(ctx context.Context) error { _, err := s.LoadRegister(ctx, "m1"); return err },
	} {
		if err := call(t.Context()); !errors.Is(err, want) {
			t.Errorf("%s = %v; want %v", name, err, want)
		}
	}
}

// TestRestartIsSurvived is S28: killed and started again, Cassandra is used again within ten seconds of being there, by
// the same store. What it had acknowledged just before may be gone, as its log has it on disk some time later; that is
// why the journal keeps what was confirmed, and writes it again as is done here.
func TestRestartIsSurvived(t *testing.T) {
	c := own(t)
	o := options(t)
	o.Timeout, o.ConnectTimeout = 2*time.Second, 2*time.Second
	var downs atomic.Int32
	o.OnDown = func() { downs.Add(1) }
	s := open(t, o)
	jid := newJID()
	facts := []job.Fact{publish(jid, 86400), minionsOf(jid, "a"), returnOf(jid, "a", []byte{0xc3})}
	merge(t, s, facts...)
	if err := c.Kill(); err != nil {
		t.Fatal(err)
	}
	await(t, 10*time.Second, func() error {
		if downs.Load() == 0 {
			return errors.New("OnDown was not called")
		}
		return nil
	})
	everyCallSays(t, s, tiers.ErrUnavailable)
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	back := time.Now()
	await(t, 10*time.Second, func() error {
		_, err := s.Merge(t.Context(), facts)
		return err
	})
	t.Logf("wrote %v after Cassandra answered again", time.Since(back).Round(time.Millisecond))
	if n := downs.Load(); n != 1 {
		t.Errorf("OnDown was called %d times", n)
	}
	if h, err := s.Head(t.Context(), jid); err != nil || h.Load == nil {
		t.Errorf("Head = %+v, %v", h, err)
	}
	if all, _ := allReturns(t, s, jid, tiers.ReturnQuery{}); len(all) != 1 {
		t.Errorf("%d returns; want 1", len(all))
	}
}

// TestHangIsTimedOut: what hangs is told from what is away, each call ends in its time, and when it goes on so do we.
func TestHangIsTimedOut(t *testing.T) {
	c := own(t)
	o := options(t)
	o.Timeout = 500 * time.Millisecond
	s := open(t, o)
	jid := newJID()
	await(t, 10*time.Second, func() error { // the first statements take longer: they are prepared
		_, err := s.Merge(t.Context(), []job.Fact{publish(jid, 86400), minionsOf(jid, "a"), returnOf(jid, "a", []byte{0xc3})})
		return err
	})
	if err := c.Hang(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Continue(); err != nil {
			t.Error(err)
		}
	}()
	for name, call := range map[string]func() error{
		"Head":  func() error { _, err := s.Head(t.Context(), jid); return err },
		"Merge": func() error { _, err := s.Merge(t.Context(), []job.Fact{returnOf(jid, "b", nil)}); return err },
	} {
		start := time.Now()
		if err := call(); !errors.Is(err, tiers.ErrTimeout) {
			t.Errorf("%s of a Cassandra that hangs = %v; want ErrTimeout", name, err)
		}
		// Ten times the timeout: this machine has two cores and more to do than us.
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("%s took %v with a timeout of 500ms", name, took)
		}
	}
	callersGiveUp(t, s)
	if err := c.Continue(); err != nil {
		t.Fatal(err)
	}
	await(t, 10*time.Second, func() error {
		_, err := s.Merge(t.Context(), []job.Fact{returnOf(jid, "c", []byte{0xc3})})
		return err
	})
}

// callersGiveUp: the deadline of a caller is the caller's, and many of them wait for no longer than theirs.
func callersGiveUp(t *testing.T, s *cassandra.Store) {
	t.Helper()
	jid := newJID()
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			_, err := s.Merge(ctx, []job.Fact{returnOf(jid, minion(i), nil)})
			if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, tiers.ErrTimeout) {
				t.Errorf("Merge = %v; want the caller's own deadline", err)
			}
		})
	}
	wg.Wait()
}
