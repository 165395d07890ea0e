package proxy_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"saltern/job"
	"saltern/proxy"
	"saltern/proxy/proxytest"
	"saltern/tiers"
)

// TestClose: a write under way is finished, new calls are refused at once, reads are ended, and the
// store is closed when all have left.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t)
		b.write(load("*"))
		writing := newPause("merge", false)
		b.store.On(func(ctx context.Context, c proxytest.Call) error {
			if c.Op == "merge" {
				return writing.hook(ctx, c)
			}
			return hanging(ctx, c)
		})
		var calls sync.WaitGroup
		calls.Go(func() { b.write(ret("a", 1)) })
		other := job.JID("20270105120000000001")
		for name, read := range map[string]func() error{
			"head":    func() error { _, err := b.Head(ctx, other); return err },
			"returns": func() error { _, err := b.Returns(ctx, other, tiers.ReturnQuery{}); return err },
			"page":    func() error { _, err := b.Returns(ctx, other, tiers.ReturnQuery{After: "a"}); return err },
			"list":    func() error { _, err := b.List(ctx, tiers.Filter{}); return err },
		} {
			calls.Go(func() { wantErr(t, name+", under way", read(), proxy.ErrClosed, tiers.ErrNotFound) })
		}
		synctest.Wait()
		closed := make(chan error, 1)
		go func() { closed <- b.Close() }()
		synctest.Wait()

		_, err := b.Write(ctx, load("late"))
		wantErr(t, "write", err, proxy.ErrClosed, nil)
		wantErr(t, "write", err, tiers.ErrUnavailable, tiers.ErrNotFound)
		_, err = b.Head(ctx, jid)
		wantErr(t, "head", err, proxy.ErrClosed, nil)
		_, err = b.Returns(ctx, jid, tiers.ReturnQuery{})
		wantErr(t, "returns", err, proxy.ErrClosed, nil)
		_, err = b.List(ctx, tiers.Filter{})
		wantErr(t, "list", err, proxy.ErrClosed, nil)
		wantErr(t, "register", b.SaveRegister(ctx, "m", nil), proxy.ErrClosed, nil)
		b.Clean()
		if jid := b.PrepJID(ctx); len(jid) != 20 {
			t.Errorf("jid %q", jid)
		}
		select {
		case err := <-closed:
			t.Fatalf("closed with a write under way: %v", err)
		default:
		}
		if b.store.Closed() {
			t.Fatal("the store was closed under a write")
		}

		writing.letGo()
		calls.Wait()
		if err := <-closed; err != nil || !b.store.Closed() {
			t.Errorf("Close: %v, the store is closed: %v", err, b.store.Closed())
		}
		if err := b.Close(); err != nil {
			t.Errorf("second Close: %v", err)
		}
	})
}

// TestCloseUnderLoad: the store of the tests panics when it is called after it was closed.
func TestCloseUnderLoad(t *testing.T) {
	for range 50 {
		b := open(t, withShared, forgetful)
		var calls sync.WaitGroup
		var refused atomic.Int32
		for range 8 {
			calls.Go(func() {
				for {
					if _, err := b.Write(ctx, load("*"), ret("a", 1)); err != nil {
						wantErr(t, "write", err, proxy.ErrClosed, nil)
						refused.Add(1)
						return
					}
					_, _ = b.Head(ctx, jid)
					_, _ = b.Returns(ctx, jid, tiers.ReturnQuery{})
					_, _ = b.List(ctx, tiers.Filter{})
					b.PrepJID(ctx)
					b.Clean()
				}
			})
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		calls.Wait()
		if refused.Load() != 8 {
			t.Fatalf("%d of 8 writers were refused", refused.Load())
		}
	}
}

// TestCloseHangingShared: a shared tier that hangs holds Close up for its own time at most.
func TestCloseHangingShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, withShared, withGuards)
		b.shared.On(hanging)
		b.write(load("*"))
		start := time.Now()
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("Close took %v", took)
		}
	})
}
