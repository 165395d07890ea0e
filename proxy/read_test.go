package proxy_test

import (
	"context"
	"errors"
	"strings"
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

func TestReadUnknownJob(t *testing.T) {
	b := open(t)
	_, err := b.Head(ctx, jid)
	wantErr(t, "head", err, tiers.ErrNotFound, tiers.ErrUnavailable)
	_, err = b.Returns(ctx, jid, tiers.ReturnQuery{})
	wantErr(t, "returns", err, tiers.ErrNotFound, tiers.ErrUnavailable)
	_, err = b.Returns(ctx, jid, tiers.ReturnQuery{After: "a"})
	wantErr(t, "a later page", err, tiers.ErrNotFound, tiers.ErrUnavailable)
}

// TestReadErrorIsNotAbsence: when the store cannot be asked, nobody is told that there is no job,
// neither then nor from memory later. (Case S69, its second half.)
func TestReadErrorIsNotAbsence(t *testing.T) {
	for name, hook := range map[string]proxytest.Hook{"error": broken, "timeout": hanging} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := open(t, withGuards)
				if _, err := b.store.Merge(ctx, []job.Fact{load("*")}); err != nil { // as by another proxy
					t.Fatal(err)
				}
				b.store.On(hook)
				_, err := b.Head(ctx, jid)
				wantErr(t, "head", err, tiers.ErrUnavailable, tiers.ErrNotFound)
				_, err = b.Returns(ctx, jid, tiers.ReturnQuery{})
				wantErr(t, "returns", err, tiers.ErrUnavailable, tiers.ErrNotFound)
				if strings.Contains(err.Error(), "\n") {
					t.Errorf("an error of several lines: %q", err)
				}
				b.store.On(nil)
				b.wantTarget("the store is back", "*")
			})
		})
	}
}

// TestReadAnswers tells the answers of a shared tier apart, and none of its failures fails a read.
func TestReadAnswers(t *testing.T) {
	for _, c := range []struct {
		name  string
		hook  proxytest.Hook
		reads int
		want  proxy.Answer
	}{
		{"miss", nil, 1, proxy.Miss},
		{"error", broken, 1, proxy.Failed},
		{"timeout", hanging, 1, proxy.TimedOut},
		{"open", broken, 6, proxy.Opened},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := open(t, withShared, withGuards, forgetful)
				if _, err := b.store.Merge(ctx, []job.Fact{load("*"), ret("a", 1)}); err != nil {
					t.Fatal(err)
				}
				b.shared.On(c.hook)
				for range c.reads {
					b.wantTarget("read", "*")
				}
				b.wantReturned("read", "a=1")
				if got := b.answers("shared", c.want); got == 0 {
					t.Errorf("no %v of the shared tier was counted", c.want)
				}
				if got := b.answers("store", proxy.Hit); got != uint64(c.reads)+1 {
					t.Errorf("%d hits of the store; want %d", got, c.reads+1)
				}
			})
		})
	}
}

// TestReadSlowTier: a tier that hangs costs each read its soft timeout, until its breaker opens.
// Nobody may cancel the question when the store has answered: the breaker would never learn.
func TestReadSlowTier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, withShared, withGuards, forgetful)
		if _, err := b.store.Merge(ctx, []job.Fact{load("*")}); err != nil {
			t.Fatal(err)
		}
		b.shared.On(hanging)
		start := time.Now()
		for range 5 {
			b.wantTarget("the shared tier hangs", "*")
		}
		if took := time.Since(start); took != 5*50*time.Millisecond {
			t.Errorf("5 reads took %v; want the soft timeout of 50 ms each", took)
		}
		time.Sleep(time.Second) // the tier's own timeout
		synctest.Wait()
		start = time.Now()
		b.wantTarget("its breaker is open", "*")
		if took := time.Since(start); took != 0 {
			t.Errorf("a read with an open breaker took %v", took)
		}
		if got := b.answers("shared", proxy.Opened); got != 1 {
			t.Errorf("%d answers of an open breaker; want 1", got)
		}
	})
}

// TestReadLateAnswer: when the store cannot be asked, a shared tier's late answer is better than none.
func TestReadLateAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, withShared, forgetful)
		b.write(load("*"))
		synctest.Wait() // the shared tier has taken the write
		b.wantTarget("read once, to fill the shared tier", "*")
		synctest.Wait()
		b.store.On(broken)
		b.shared.On(slow(300 * time.Millisecond))
		b.wantTarget("the store is broken", "*")
	})
}

// TestReadOneFlight is case S79: a thousand readers of a cold job are one read of the store.
func TestReadOneFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t)
		if _, err := b.store.Merge(ctx, []job.Fact{load("*"), ret("a", 1)}); err != nil {
			t.Fatal(err)
		}
		b.store.On(slow(200 * time.Millisecond))
		var wg sync.WaitGroup
		for range 1000 {
			wg.Go(func() { b.wantTarget("cold", "*") })
			wg.Go(func() { b.wantReturned("cold", "a=1") })
		}
		wg.Wait()
		// A job's returns are read with its head, apart from readers of the head alone.
		if heads, returns := b.store.Calls("head"), b.store.Calls("returns"); heads != 2 || returns != 1 {
			t.Errorf("the store was asked for %d heads and %d returns; want 2 and 1", heads, returns)
		}
		if got := b.Stats.Coalesced.Load(); got != 1998 {
			t.Errorf("%d reads joined another; want 1998", got)
		}
		b.wantTarget("warm", "*")
		if got := b.store.Calls("head"); got != 2 {
			t.Errorf("a warm read asked the store")
		}
	})
}

// TestReadImpatientClient is case S15: the first of 100 readers gives up, by a cancellation or by its
// deadline, and 99 get the value.
func TestReadImpatientClient(t *testing.T) {
	errGone := errors.New("client disconnected")
	for name, impatient := range map[string]func() (context.Context, context.CancelFunc){
		"cancelled": func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancelCause(ctx)
			stop := time.AfterFunc(50*time.Millisecond, func() { cancel(errGone) })
			return ctx, func() { stop.Stop(); cancel(nil) }
		},
		"deadline": func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 10*time.Millisecond)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var guarded *proxy.GuardedStore
				b := open(t, func(o *proxy.Options, b *bed) {
					guarded = proxy.GuardStore(b.store, proxy.GuardOptions{})
					o.Store = guarded
				})
				if _, err := b.store.Merge(ctx, []job.Fact{load("*")}); err != nil {
					t.Fatal(err)
				}
				b.store.On(slow(500 * time.Millisecond))
				var wg sync.WaitGroup
				wg.Go(func() {
					ctx, cancel := impatient()
					defer cancel()
					start := time.Now()
					_, err := b.Head(ctx, jid)
					if took := time.Since(start); err == nil || took > 50*time.Millisecond {
						t.Errorf("the impatient client got %v after %v", err, took)
					}
					wantErr(t, "impatient", err, context.Cause(ctx), tiers.ErrNotFound)
				})
				synctest.Wait()
				for range 99 {
					wg.Go(func() { b.wantTarget("patient", "*") })
				}
				wg.Wait()
				if got := b.store.Calls("head"); got != 1 {
					t.Errorf("%d reads of the store; want 1", got)
				}
				if read, _, _ := guarded.States(); read != policy.Closed {
					t.Errorf("breaker %v; want closed", read)
				}
			})
		})
	}
}

// TestReadNegative is case S69: that a job is absent is remembered for a short time, and ended by
// any write of it.
func TestReadNegative(t *testing.T) {
	for name, first := range map[string]job.Fact{
		"load": load("*"), "return": ret("a", 1), "end time": job.EndTime{JID: jid, Text: "t"},
		"minions": job.Minions{JID: jid, IDs: []job.Minion{"a"}}, "nocache": job.NoCache{JID: jid},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := open(t)
				for range 3 {
					_, err := b.Head(ctx, jid)
					wantErr(t, "before", err, tiers.ErrNotFound, nil)
					_, err = b.Returns(ctx, jid, tiers.ReturnQuery{})
					wantErr(t, "before", err, tiers.ErrNotFound, nil)
				}
				if got := b.store.Calls("head") + b.store.Calls("returns"); got != 1 {
					t.Errorf("the store was asked %d times in one moment; want once", got)
				}
				b.write(first)
				if _, err := b.Head(ctx, jid); err != nil {
					t.Errorf("head after the write: %v", err)
				}
				if _, err := b.Returns(ctx, jid, tiers.ReturnQuery{}); err != nil {
					t.Errorf("returns after the write: %v", err)
				}
			})
		})
	}
}

// TestReadNegativeOfAnotherProxy: what another proxy writes is seen within the negative TTL.
func TestReadNegativeOfAnotherProxy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t)
		b.wantTarget("before", "not found")
		if _, err := b.store.Merge(ctx, []job.Fact{load("*")}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		b.wantTarget("a second later", "*")
	})
}

func TestReadPages(t *testing.T) {
	const fill = 100
	b := open(t, func(o *proxy.Options, _ *bed) { o.FillBytes = fill })
	b.write(load("*"))
	want := ""
	for _, m := range []job.Minion{"a", "b", "c", "d", "e"} {
		r := ret(m, 1)
		r.Rest = make([]byte, 40)
		b.write(r)
		want += string(m)
	}
	if err := b.cache.Evict(ctx, jid); err != nil {
		t.Fatal(err)
	}
	for _, max := range []int{0, 1, 60, 1000} {
		got, after := "", job.Minion("")
		for {
			page, err := b.Returns(ctx, jid, tiers.ReturnQuery{After: after, MaxBytes: max})
			if err != nil || len(page.Returns) == 0 && page.Next != "" {
				t.Fatalf("pages of %d: %+v, %v", max, page, err)
			}
			for _, r := range page.Returns {
				got += string(r.Minion)
			}
			if page.Next == "" {
				break
			}
			after = page.Next
		}
		if got != want {
			t.Errorf("pages of %d bytes have minions %q; want %q", max, got, want)
		}
	}
	if s, filled := b.cache.Filled(jid); filled && s.HasReturns && len(s.Returns) > 0 {
		t.Errorf("a job above FillBytes was filled as a whole: %d returns", len(s.Returns))
	}
	page, err := b.Returns(ctx, jid, tiers.ReturnQuery{Only: []job.Minion{"e", "b", "x"}})
	if got := pageString(page); err != nil || got != "b=1 e=1" {
		t.Errorf("returns of e, b and x: %q, %v", got, err)
	}
}

// TestReadSealed: where others write to the same store, the cache believes in a running job for the
// staleness bound alone, and in a job that all minions have returned for as long as it lives.
func TestReadSealed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, func(o *proxy.Options, _ *bed) { o.Staleness = time.Second })
		other := func(f job.Fact) {
			if _, err := b.store.Merge(ctx, []job.Fact{f}); err != nil {
				t.Fatal(err)
			}
		}
		other(load("*"))
		other(job.Minions{JID: jid, IDs: []job.Minion{"a", "b"}})
		other(ret("a", 1))
		b.wantReturned("one has returned", "a=1")
		other(ret("b", 2))
		time.Sleep(time.Second)
		b.wantReturned("a second later", "a=1 b=2")
		asked := b.store.Calls("returns")
		time.Sleep(time.Hour)
		b.wantReturned("an hour after the job was sealed", "a=1 b=2")
		if got := b.store.Calls("returns"); got != asked {
			t.Errorf("the store was asked for a sealed job")
		}
		b.write(ret("c", 3)) // a syndic's minion: not sealed any more
		b.wantReturned("unsealed", "a=1 b=2 c=3")
	})
}

// TestReadSharedAbsence: a shared tier that knows of the durable store that there is no such job is
// believed.
func TestReadSharedAbsence(t *testing.T) {
	b := open(t, withShared)
	b.shared.On(func(_ context.Context, c proxytest.Call) error { return tiers.ErrAbsent })
	b.store.On(broken)
	_, err := b.Head(ctx, jid)
	wantErr(t, "head", err, tiers.ErrNotFound, tiers.ErrUnavailable)
	if got := b.answers("shared", proxy.Absent); got != 1 {
		t.Errorf("%d answers of absence; want 1", got)
	}
}

// TestReadOvertaken: a job that grows by more than a fill notes while it is read is read again, and
// the reading that was overtaken fills nothing.
func TestReadOvertaken(t *testing.T) {
	b := open(t)
	b.write(load("*"))
	if err := b.cache.Evict(ctx, jid); err != nil {
		t.Fatal(err)
	}
	p := newPause("returns", true)
	b.store.On(p.hook)
	var reader sync.WaitGroup
	reader.Go(func() { b.wantReturned("overtaken", "a=1 ...") })
	<-p.reached
	payload := make([]byte, 7<<20)
	for i, m := range []job.Minion{"a", "b", "c"} {
		r := ret(m, byte(i+1))
		r.Rest = payload
		b.write(r)
	}
	p.letGo()
	reader.Wait()
	if b.cache.Holds(jid) {
		t.Error("the cache was filled")
	}
}
