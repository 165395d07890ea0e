package proxy_test

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"saltern/job"
	"saltern/proxy"
	"saltern/proxy/proxytest"
)

// keepLoad is a load of a job of this moment that is kept for a time.
func keepLoad(keep job.Keep) job.Load {
	l := load("*")
	l.JID, l.Keep = job.NewJID(now()), keep
	return l
}

// TestBackFillTTL is case S70: what is filled from below lives in the cache for the rest of the job's
// time, and a little less for the jitter; never longer.
func TestBackFillTTL(t *testing.T) {
	for _, c := range []struct {
		name      string
		keep      job.Keep
		age       time.Duration
		staleness time.Duration
		min, max  time.Duration
		fresh     time.Duration // less the jitter
	}{
		{name: "new job", keep: 3600, min: 54 * time.Minute, max: time.Hour},
		{name: "1 s left", keep: 10, age: 9 * time.Second, min: 900 * time.Millisecond, max: time.Second},
		{name: "for ever", keep: job.KeepForever, min: 0, max: 0},
		{name: "for 300 years", keep: 300 * 366 * 86400, min: 0, max: 0},
		{name: "bounded staleness", keep: 3600, staleness: time.Second, fresh: time.Second, min: 54 * time.Minute, max: time.Hour},
		{name: "the store's default", keep: job.KeepUnset, min: 54 * time.Second, max: time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := open(t, func(o *proxy.Options, _ *bed) { o.Staleness = c.staleness })
				l := keepLoad(c.keep)
				b.write(l)
				time.Sleep(c.age)
				if err := b.cache.Evict(ctx, l.JID); err != nil {
					t.Fatal(err)
				}
				if _, err := b.Head(ctx, l.JID); err != nil {
					t.Fatal(err)
				}
				s, filled := b.cache.Filled(l.JID)
				if !filled || s.TTL < c.min || s.TTL > c.max {
					t.Errorf("filled: %v, for %v; want from %v to %v", filled, s.TTL, c.min, c.max)
				}
				if s.Fresh > c.fresh || s.Fresh < c.fresh*9/10 {
					t.Errorf("filled as fresh for %v; want %v and up to a tenth less", s.Fresh, c.fresh)
				}
			})
		})
	}
}

// TestExpiredEverywhere: when its time has passed and the store has removed it, no tier has the job.
func TestExpiredEverywhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, func(o *proxy.Options, _ *bed) { o.ExpireEvery = time.Second })
		l := keepLoad(10)
		b.write(l)
		time.Sleep(8 * time.Second)
		if _, err := b.Head(ctx, l.JID); err != nil {
			t.Errorf("at 8 s of 10: %v", err)
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if h, err := b.Head(ctx, l.JID); err == nil {
			t.Errorf("at 11 s of 10: %+v", h)
		}
	})
}

// TestExpiredIsNotFilled: a job that the store has not removed yet is read, and not cached.
func TestExpiredIsNotFilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, func(o *proxy.Options, _ *bed) { o.ExpireEvery = time.Hour })
		l := keepLoad(10)
		b.write(l)
		time.Sleep(time.Minute)
		for range 2 {
			if _, err := b.Head(ctx, l.JID); err != nil {
				t.Errorf("head: %v", err)
			}
		}
		if got := b.store.Calls("head"); got != 2 {
			t.Errorf("the store was asked %d times; want twice", got)
		}
	})
}

// TestLoadChangesKeep: a load that comes when the cache holds the job changes how long it does.
func TestLoadChangesKeep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, func(o *proxy.Options, _ *bed) { o.ExpireEvery = time.Second })
		first := keepLoad(job.KeepForever)
		first.Rank = job.RankReturn
		b.write(first)
		publish := first
		publish.Rank, publish.Keep = job.RankPublish, 10
		b.write(publish)
		if _, err := b.Head(ctx, publish.JID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(12 * time.Second)
		if _, err := b.Head(ctx, publish.JID); err == nil {
			t.Error("the job is read after its time has passed")
		}
	})
}

func TestClean(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t)
		p := newPause("expire", false)
		b.store.On(p.hook)
		b.Clean()
		<-p.reached
		start := time.Now()
		for range 1000 {
			b.Clean()
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("Clean waited %v for a purge under way", took)
		}
		b.write(load("*"))
		b.wantTarget("written during a purge", "*")
		p.letGo()
		synctest.Wait()
		if got := b.store.Calls("expire"); got != 2 {
			t.Errorf("%d purges for 1001 calls of Clean; want 2", got)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := b.store.Calls("expire"); got != 3 {
			t.Errorf("%d purges a minute later; want 3", got)
		}
	})
}

// TestExpireFails: a purge that fails is logged, once each, and tried again.
func TestExpireFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		var fails atomic.Bool
		fails.Store(true)
		b := open(t, func(o *proxy.Options, b *bed) {
			o.Logger = slog.New(slog.NewTextHandler(&log, nil))
			b.store.On(func(_ context.Context, c proxytest.Call) error {
				if c.Op == "expire" && fails.Load() {
					return errBroken
				}
				return nil
			})
		})
		l := keepLoad(1)
		b.write(l)
		time.Sleep(time.Minute)
		synctest.Wait()
		fails.Store(false)
		time.Sleep(time.Minute)
		synctest.Wait()
		if _, err := b.Head(ctx, l.JID); err == nil {
			t.Error("the job was not removed")
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(log.String(), "level=WARN"); got != 1 {
			t.Errorf("%d warnings; want 1:\n%s", got, log.String())
		}
	})
}
