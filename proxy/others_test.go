package proxy_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"saltern/job"
	"saltern/proxy"
	"saltern/tiers"
	"saltern/tiers/memory"
)

// openBounded opens a proxy over the real cache with a staleness bound of a second, and gives what
// moves the clock of the cache on.
func openBounded(t *testing.T) (b *bed, pass func(time.Duration)) {
	var passed atomic.Int64
	b = open(t, withGuards, func(o *proxy.Options, _ *bed) {
		start := time.Now()
		c, err := memory.New(memory.Options{Now: func() time.Time { return start.Add(time.Duration(passed.Load())) }})
		if err != nil {
			t.Fatal(err)
		}
		o.Cache, o.Staleness = c, time.Second
	})
	return b, func(d time.Duration) { passed.Add(int64(d)) }
}

// What another proxy wrote to a running job is seen after the staleness bound.
func TestStalenessIsBounded(t *testing.T) {
	b, pass := openBounded(t)
	b.write(load("*"), job.Minions{JID: jid, IDs: []job.Minion{"a", "b"}}, ret("a", 1))
	b.wantReturned("written here", "a=1")
	other := ret("b", 2)
	other.Version = job.VersionAt(now())
	if _, err := b.store.Merge(ctx, []job.Fact{other}); err != nil {
		t.Fatal(err)
	}
	pass(time.Second)
	b.wantReturned("a second later", "a=1 b=2")
}

// While no tier can be asked, what is not fresh any more is still answered with, and has all that was
// written here; nothing is made up for a job that is not held.
func TestStaleRatherThanNothing(t *testing.T) {
	b, pass := openBounded(t)
	b.write(load("*"), job.Minions{JID: jid, IDs: []job.Minion{"a", "b"}}, ret("a", 1))
	pass(time.Minute)
	b.store.On(broken)
	b.wantTarget("the store is away", "*")
	b.wantReturned("the store is away", "a=1")
	page, err := b.Returns(ctx, jid, tiers.ReturnQuery{After: "a"})
	if err != nil || len(page.Returns) != 0 {
		t.Errorf("the page after the last: %v, %v", page, err)
	}
	if n := b.Stats.Stale.Load(); n == 0 {
		t.Error("stale answers are not counted")
	}
	_, err = b.Head(ctx, "unknown")
	wantErr(t, "an unknown job", err, tiers.ErrUnavailable, tiers.ErrNotFound)
}

// told is a backplane that remembers what it was told.
type told struct {
	mu    sync.Mutex
	facts []job.Fact
	ran   chan struct{}
}

func (b *told) Publish(facts ...job.Fact) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.facts = append(b.facts, facts...)
}

func (b *told) Run(ctx context.Context) {
	<-ctx.Done()
	close(b.ran)
}

// Others are told of what the store has, once the shared tiers have it, and of nothing else.
func TestBackplaneIsToldOfWrites(t *testing.T) {
	bp := &told{ran: make(chan struct{})}
	b := open(t, withShared, func(o *proxy.Options, _ *bed) { o.Backplane = bp })
	b.write(load("*"), ret("a", 1))
	b.store.On(broken)
	if _, err := b.Write(ctx, ret("b", 2)); err == nil {
		t.Fatal("written to a broken store")
	}
	b.store.On(nil)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	<-bp.ran
	if len(bp.facts) != 2 {
		t.Errorf("told of %d facts: %v", len(bp.facts), bp.facts)
	}
}

// A shared tier that was filled from the store before the store had a fact forgets the job when the
// store has it, and others are told.
func TestStoredLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bp := &told{ran: make(chan struct{})}
		b := open(t, withShared, forgetful, func(o *proxy.Options, _ *bed) { o.Backplane = bp })
		b.write(load("*"))
		synctest.Wait()
		b.wantReturned("fills the shared tier", "")
		synctest.Wait()
		late := ret("a", 1)
		late.Version = job.VersionAt(now())
		if _, err := b.store.Merge(ctx, []job.Fact{late}); err != nil {
			t.Fatal(err)
		}
		b.wantReturned("from the shared tier, which does not know", "")
		b.StoredLate([]job.Fact{late})
		b.wantReturned("from the store", "a=1")
		time.Sleep(2 * time.Second)
		if b.shared.Holds(jid) {
			t.Error("the shared tier still holds the job")
		}
		bp.mu.Lock()
		defer bp.mu.Unlock()
		if len(bp.facts) != 2 {
			t.Errorf("others were told of %d facts", len(bp.facts))
		}
	})
}

// What others wrote is read anew, also by a read that was under way when they said so.
func TestForget(t *testing.T) {
	for name, forget := range map[string]func(*bed){
		"one job":    func(b *bed) { b.Forget(jid) },
		"everything": func(b *bed) { b.ForgetAll() },
	} {
		t.Run(name, func(t *testing.T) {
			c := newMemory(t, 1<<20)
			b := open(t, func(o *proxy.Options, _ *bed) { o.Cache = c })
			b.write(load("*"))
			b.wantReturned("at first", "")
			if _, err := b.store.Merge(ctx, []job.Fact{ret("a", 1)}); err != nil {
				t.Fatal(err)
			}
			b.wantReturned("before it is known", "")
			forget(b)
			b.wantReturned("after it is known", "a=1")

			// Under way: the store has been read, and the cache is not filled yet.
			_ = c.Evict(ctx, jid)
			p := newPause("returns", true)
			b.store.On(p.hook)
			read := make(chan string, 1)
			go func() { read <- b.returned() }()
			<-p.reached
			if _, err := b.store.Merge(ctx, []job.Fact{ret("b", 2)}); err != nil {
				t.Fatal(err)
			}
			forget(b)
			p.letGo()
			b.store.On(nil)
			if got := <-read; !slices.Contains([]string{"a=1", "a=1 b=2"}, got) {
				t.Errorf("the read under way gave %q", got)
			}
			b.wantReturned("after the read under way", "a=1 b=2")
		})
	}
}

// What others wrote to is still better than nothing when no tier can be asked, and nothing else.
func TestForgottenRatherThanNothing(t *testing.T) {
	for name, forget := range map[string]func(*bed){
		"one job":    func(b *bed) { b.Forget(jid) },
		"everything": func(b *bed) { b.ForgetAll() },
	} {
		t.Run(name, func(t *testing.T) {
			c := newMemory(t, 1<<20)
			b := open(t, withGuards, func(o *proxy.Options, _ *bed) { o.Cache = c })
			_, err := b.Head(ctx, "unknown")
			wantErr(t, "an unknown job", err, tiers.ErrNotFound, tiers.ErrUnavailable)
			b.write(load("*"), job.Minions{JID: jid, IDs: []job.Minion{"a"}}, ret("a", 1))
			forget(b)
			b.store.On(broken)
			b.wantTarget("the store is away", "*")
			b.wantReturned("the store is away", "a=1")
			if name == "everything" {
				_, err = b.Head(ctx, "unknown")
				wantErr(t, "a job that may be there by now", err, tiers.ErrUnavailable, tiers.ErrNotFound)
			}
		})
	}
}

// A job that was minted here is in the shared tier with its publish, for as long as a running one may be; of another
// one it is not known what there was before.
func TestPublishFillsTheSharedTier(t *testing.T) {
	b := open(t, withShared, func(o *proxy.Options, b *bed) { b.shared.Leases, o.Staleness = false, time.Second })
	minted := load("*")
	minted.JID = b.PrepJID(ctx)
	b.write(minted, job.Minions{JID: minted.JID, IDs: []job.Minion{"a"}})
	b.write(load("*"))
	if err := b.Close(); err != nil { // the shared tier is not waited for
		t.Fatal(err)
	}
	s, filled := b.shared.Filled(minted.JID)
	if !filled || !s.HasReturns || s.Head.Load == nil || len(s.Head.Minions) != 1 || s.TTL <= 0 || s.TTL > time.Second {
		t.Errorf("filled: %v, %+v", filled, s)
	}
	if s, filled := b.shared.Filled(jid); filled {
		t.Errorf("filled with what may not be all: %+v", s)
	}
}

// A read under way when others wrote gives what is better than nothing, too.
func TestReadUnderWayRatherThanNothing(t *testing.T) {
	for name, forget := range map[string]func(*bed){
		"one job":    func(b *bed) { b.Forget(jid) },
		"everything": func(b *bed) { b.ForgetAll() },
	} {
		t.Run(name, func(t *testing.T) {
			c := newMemory(t, 1<<20)
			b := open(t, withGuards, func(o *proxy.Options, _ *bed) { o.Cache = c })
			b.write(load("*"), ret("a", 1))
			_ = c.Evict(ctx, jid)
			p := newPause("returns", true)
			b.store.On(p.hook)
			read := make(chan string, 1)
			go func() { read <- b.returned() }()
			<-p.reached
			forget(b)
			p.letGo()
			<-read
			b.store.On(nil)
			if _, err := c.Head(ctx, jid); !errors.Is(err, tiers.ErrNotFound) {
				t.Errorf("the cache answers with what others wrote to: %v", err)
			}
			b.store.On(broken)
			b.wantReturned("the store is away", "a=1")
		})
	}
}
