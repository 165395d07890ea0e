package proxy_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"saltern/job"
	"saltern/policy"
	"saltern/proxy"
	"saltern/proxy/proxytest"
	"saltern/tiers"
)

// guarded gives a store with one job behind its guard. Times are those of a bubble.
func guarded(t *testing.T, o proxy.GuardOptions) (*proxy.GuardedStore, *proxytest.Store) {
	under := &proxytest.Store{}
	g := proxy.GuardStore(under, o)
	if _, err := g.Merge(ctx, []job.Fact{load("*")}); err != nil {
		t.Fatal(err)
	}
	return g, under
}

func wantStates(t *testing.T, when string, g *proxy.GuardedStore, read, write, list policy.BreakerState) {
	t.Helper()
	if r, w, l := g.States(); r != read || w != write || l != list {
		t.Errorf("%s: breakers of reads, writes and lists %v, %v, %v; want %v, %v, %v", when, r, w, l, read, write, list)
	}
}

// deaf is a hook of a driver that hangs and ignores its context, until release is closed.
func deaf(release <-chan struct{}) proxytest.Hook {
	return func(context.Context, proxytest.Call) error {
		<-release
		return nil
	}
}

// TestGuardDeafDriver: a call returns in its time though its driver does not, and the breaker learns.
func TestGuardDeafDriver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, under := guarded(t, proxy.GuardOptions{})
		release := make(chan struct{})
		under.On(deaf(release))
		for i := range 5 {
			start := time.Now()
			_, err := g.Head(ctx, jid)
			wantErr(t, "hangs", err, tiers.ErrTimeout, tiers.ErrNotFound)
			if took := time.Since(start); took != time.Second {
				t.Errorf("call %d returned after %v; want 1 s", i, took)
			}
		}
		wantStates(t, "after 5 timeouts", g, policy.Open, policy.Closed, policy.Closed)
		start := time.Now()
		_, err := g.Head(ctx, jid)
		wantErr(t, "open", err, tiers.ErrOpen, tiers.ErrNotFound)
		if took := time.Since(start); took != 0 {
			t.Errorf("a refused call took %v", took)
		}

		// A probe that hangs is ended by its time, and does not keep the breaker shut for ever.
		time.Sleep(1100 * time.Millisecond)
		_, err = g.Head(ctx, jid)
		wantErr(t, "probe", err, tiers.ErrTimeout, nil)
		close(release)
		time.Sleep(1100 * time.Millisecond)
		if _, err := g.Head(ctx, jid); err != nil {
			t.Errorf("the driver is back: %v", err)
		}
		wantStates(t, "the driver is back", g, policy.Closed, policy.Closed, policy.Closed)
	})
}

// TestGuardClientsGiveUp is case S16: 200 clients give up while the store answers in 200 ms. Their
// cancellations, also with a cause, and their deadlines say nothing about the store.
func TestGuardClientsGiveUp(t *testing.T) {
	errGone := errors.New("client disconnected")
	ways := map[string]func() (context.Context, context.CancelFunc){
		"cancelled": func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(50*time.Millisecond, cancel)
			return ctx, cancel
		},
		"cancelled with a cause": func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancelCause(ctx)
			time.AfterFunc(50*time.Millisecond, func() { cancel(errGone) })
			return ctx, func() { cancel(nil) }
		},
		"deadline": func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 50*time.Millisecond)
		},
		"gone before the call": func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			return ctx, cancel
		},
	}
	for name, giveUp := range ways {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, under := guarded(t, proxy.GuardOptions{})
				under.On(slow(200 * time.Millisecond))
				var wg sync.WaitGroup
				for range 200 {
					wg.Go(func() {
						ctx, cancel := giveUp()
						defer cancel()
						_, err := g.Head(ctx, jid)
						wantErr(t, "gave up", err, context.Cause(ctx), tiers.ErrTimeout)
					})
				}
				wg.Wait()
				wantStates(t, "200 gave up", g, policy.Closed, policy.Closed, policy.Closed)
				if _, err := g.Head(ctx, jid); err != nil {
					t.Errorf("a patient client: %v", err)
				}
			})
		})
	}
}

// TestGuardCancelledProbe is the rest of S16: it frees its place for the next.
func TestGuardCancelledProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, under := guarded(t, proxy.GuardOptions{})
		under.On(broken)
		for range 5 {
			_, _ = g.Head(ctx, jid)
		}
		time.Sleep(1100 * time.Millisecond)
		under.On(hanging)
		gone, cancel := context.WithCancel(ctx)
		time.AfterFunc(50*time.Millisecond, cancel)
		_, err := g.Head(gone, jid)
		wantErr(t, "cancelled probe", err, context.Canceled, tiers.ErrOpen)
		under.On(nil)
		if _, err := g.Head(ctx, jid); err != nil {
			t.Errorf("the next probe: %v", err)
		}
		wantStates(t, "after the next probe", g, policy.Closed, policy.Closed, policy.Closed)
	})
}

// TestGuardAnswers: what a store says about a request says nothing about its health.
func TestGuardAnswers(t *testing.T) {
	for _, answer := range []error{tiers.ErrNotFound, tiers.ErrAbsent, tiers.ErrTooLarge, tiers.ErrInvalid,
		tiers.ErrFull, &tiers.Miss{Lease: "1"}} {
		g, under := guarded(t, proxy.GuardOptions{})
		wrapped := fmt.Errorf("driver: %w", answer)
		under.On(func(context.Context, proxytest.Call) error { return wrapped })
		for range 20 {
			_, err := g.Head(ctx, jid)
			wantErr(t, "read", err, answer, nil)
			_, err = g.Merge(ctx, []job.Fact{load("*")})
			wantErr(t, "write", err, answer, nil)
		}
		wantStates(t, answer.Error(), g, policy.Closed, policy.Closed, policy.Closed)
	}
}

// TestGuardClasses: reads, writes and lists fail apart.
func TestGuardClasses(t *testing.T) {
	g, under := guarded(t, proxy.GuardOptions{})
	fail := func(op string) {
		under.On(func(_ context.Context, c proxytest.Call) error {
			if c.Op == op {
				return errBroken
			}
			return nil
		})
		for range 5 {
			_, _ = g.Head(ctx, jid)
			_, _ = g.Merge(ctx, []job.Fact{load("*")})
			_, _ = g.List(ctx, tiers.Filter{})
		}
	}
	fail("list")
	wantStates(t, "lists fail", g, policy.Closed, policy.Closed, policy.Open)
	fail("merge")
	wantStates(t, "writes fail too", g, policy.Closed, policy.Open, policy.Open)
	fail("head")
	wantStates(t, "all fail", g, policy.Open, policy.Open, policy.Open)
}

// TestGuardSlow: answers that are slow count, lists have longer, and a slow list takes no job away.
func TestGuardSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, under := guarded(t, proxy.GuardOptions{Slow: 200 * time.Millisecond})
		under.On(slow(10 * time.Second))
		for range 10 {
			if _, err := g.List(ctx, tiers.Filter{}); err != nil {
				t.Fatal(err)
			}
		}
		wantStates(t, "lists of 10 s", g, policy.Closed, policy.Closed, policy.Closed)
		under.On(slow(300 * time.Millisecond))
		for range 5 {
			if _, err := g.Head(ctx, jid); err != nil {
				t.Fatal(err)
			}
		}
		wantStates(t, "heads of 300 ms", g, policy.Open, policy.Closed, policy.Closed)
	})
}

// TestGuardListTimeouts: lists that time out one after the other open their breaker, long as they take.
func TestGuardListTimeouts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, under := guarded(t, proxy.GuardOptions{})
		under.On(hanging)
		for range 5 {
			_, err := g.List(ctx, tiers.Filter{})
			wantErr(t, "list", err, tiers.ErrTimeout, nil)
		}
		wantStates(t, "5 timeouts of 30 s", g, policy.Closed, policy.Closed, policy.Open)
	})
}

// TestGuardClose waits for calls that were left behind, and closes nothing under one that hangs.
func TestGuardClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, under := guarded(t, proxy.GuardOptions{})
		release := make(chan struct{})
		under.On(deaf(release))
		_, err := g.Head(ctx, jid)
		wantErr(t, "hangs", err, tiers.ErrTimeout, nil)
		wantErr(t, "close", g.Close(), tiers.ErrTimeout, nil)
		if under.Closed() {
			t.Error("the store was closed under a call")
		}
		time.AfterFunc(100*time.Millisecond, func() { close(release) })
		if err := g.Close(); err != nil || !under.Closed() {
			t.Errorf("the call has ended: %v, closed = %v", err, under.Closed())
		}
	})
}

// TestGuardPassesThrough: all that a store does is reached through its guard.
func TestGuardPassesThrough(t *testing.T) {
	g, _ := guarded(t, proxy.GuardOptions{})
	if err := g.SaveRegister(ctx, "m", []byte{1}); err != nil {
		t.Error(err)
	}
	if data, err := g.LoadRegister(ctx, "m"); err != nil || len(data) != 1 {
		t.Errorf("register %v, %v", data, err)
	}
	if _, err := g.Merge(ctx, []job.Fact{ret("a", 1), job.Event{ID: job.EventID{1}}}); err != nil {
		t.Error(err)
	}
	if page, err := g.Events(ctx, tiers.EventQuery{}); err != nil || len(page.Events) != 1 {
		t.Errorf("events %v, %v", page, err)
	}
	if l, err := g.LastFunctions(ctx, ""); err != nil || len(l) != 1 {
		t.Errorf("last functions %v, %v", l, err)
	}
	if page, err := g.List(ctx, tiers.Filter{}); err != nil || len(page.Jobs) != 1 {
		t.Errorf("list %v, %v", page, err)
	}
	if _, err := g.Expire(ctx, now()); err != nil {
		t.Error(err)
	}
	if err := g.Fill(ctx, tiers.Snapshot{}); err != nil {
		t.Errorf("fill of a tier that is no cache: %v", err)
	}
	if g.Name() != "store" {
		t.Errorf("name %q", g.Name())
	}
}
