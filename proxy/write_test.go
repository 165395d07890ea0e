package proxy_test

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"saltern/job"
	"saltern/proxy"
	"saltern/proxy/proxytest"
	"saltern/tiers"
)

// TestWriteThenRead is case S17: what was acknowledged is read, each kind of fact, whether or not the
// cache holds anything.
func TestWriteThenRead(t *testing.T) {
	for name, change := range map[string]func(*proxy.Options, *bed){
		"cache": func(*proxy.Options, *bed) {}, "forgetful cache": forgetful,
	} {
		t.Run(name, func(t *testing.T) {
			b := open(t, change)
			b.write(load("*"), job.Minions{JID: jid, IDs: []job.Minion{"b", "a"}})
			b.wantTarget("published", "*")
			b.wantReturned("published", "")
			b.write(ret("b", 2))
			b.wantReturned("one returned", "b=2")
			b.write(ret("a", 1))
			b.write(job.EndTime{JID: jid, Text: "2026, Dec 01"})
			b.write(job.Minions{JID: jid, IDs: []job.Minion{"c"}})
			b.wantReturned("two returned", "a=1 b=2")
			h, err := b.Head(ctx, jid)
			if err != nil || h.EndTime == nil || h.EndTime.Text != "2026, Dec 01" {
				t.Errorf("end time %+v, %v", h.EndTime, err)
			}
			if want := []job.Minion{"a", "b", "c"}; !slices.Equal(h.Minions, want) {
				t.Errorf("minions %v; want %v", h.Minions, want)
			}
		})
	}
}

// TestWriteTwice is case S04: of two writes in a row the second is read, of two returns the first.
func TestWriteTwice(t *testing.T) {
	for name, change := range map[string]func(*proxy.Options, *bed){
		"cache": func(*proxy.Options, *bed) {}, "forgetful cache": forgetful,
	} {
		t.Run(name, func(t *testing.T) {
			b := open(t, change)
			b.write(load("partial"))
			b.write(load("full"))
			b.wantTarget("two loads", "full")
			got := append(b.write(ret("a", 1)), b.write(ret("a", 1))...)
			got = append(got, b.write(ret("a", 2))...)
			if want := []job.Outcome{job.Stored, job.Repeat, job.Differs}; !slices.Equal(got, want) {
				t.Errorf("outcomes %v; want %v", got, want)
			}
			b.wantReturned("three returns", "a=1")
			late := load("from a return")
			late.Rank = job.RankReturn
			b.write(late, ret("b", 1))
			b.wantTarget("a load shaped as a return", "full")
		})
	}
}

// TestWriteCreatesInCache: a job that was just published is read from the cache, without a question
// to the store.
func TestWriteCreatesInCache(t *testing.T) {
	b := open(t)
	if got := b.write(load("*"), job.Minions{JID: jid, IDs: []job.Minion{"a"}}, ret("a", 1)); got[0] != job.Created {
		t.Errorf("outcome %v; want created", got[0])
	}
	b.wantTarget("published", "*")
	b.wantReturned("published", "a=1")
	if got := b.store.Calls("head") + b.store.Calls("returns"); got != 0 {
		t.Errorf("the store was asked %d times", got)
	}
}

// TestWriteDropped: returns of a job marked nocache are kept nowhere.
func TestWriteDropped(t *testing.T) {
	b := open(t)
	b.write(job.NoCache{JID: jid})
	if got := b.write(load("*"), ret("a", 1)); got[1] != job.Dropped {
		t.Errorf("outcome %v; want dropped", got[1])
	}
	b.wantReturned("nocache", "")
}

// TestReadPausedWhileWritten is case S05: a reader has read the old value, or that there is no job,
// and is stopped before it fills the cache. What is written meanwhile is never hidden by that fill.
func TestReadPausedWhileWritten(t *testing.T) {
	reads := map[string]func(*bed){
		"head":    func(b *bed) { _, _ = b.Head(ctx, jid) },
		"returns": func(b *bed) { _, _ = b.Returns(ctx, jid, tiers.ReturnQuery{}) },
	}
	before := map[string][]job.Fact{
		"no job":          nil,
		"job":             {load("old"), ret("m", 1)},
		"return, no load": {ret("m", 1)},
	}
	for readName, read := range reads {
		for beforeName, facts := range before {
			t.Run(readName+", "+beforeName, func(t *testing.T) {
				b := open(t)
				if len(facts) > 0 {
					b.write(facts...)
				}
				if err := b.cache.Evict(ctx, jid); err != nil {
					t.Fatal(err)
				}
				p := newPause(readName, true)
				b.store.On(p.hook)
				var reader sync.WaitGroup
				reader.Go(func() { read(b) })
				<-p.reached

				b.write(load("new"))
				b.write(ret("m", 1), ret("n", 2))
				// They may join the reading that is stopped, and came after the writes.
				reader.Go(func() { b.wantTarget("joined", "new") })
				reader.Go(func() { b.wantReturned("joined", "m=1 n=2") })
				p.letGo()
				reader.Wait()
				b.wantTarget("the reader has gone on", "new")
				b.wantReturned("the reader has gone on", "m=1 n=2")
				b.write(ret("o", 3))
				b.wantReturned("one more return", "m=1 n=2 o=3")
			})
		}
	}
}

// TestSharedBackFillPaused is S05 for the shared tier: its fill is the slow step.
func TestSharedBackFillPaused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, withShared, forgetful)
		b.write(load("old"))
		synctest.Wait()
		p := newPause("fill", false)
		b.shared.On(p.hook)
		b.wantTarget("first read", "old")
		<-p.reached
		b.write(load("new"), ret("a", 1))
		synctest.Wait()
		p.letGo()
		synctest.Wait()
		b.wantTarget("after the old fill", "new")
		if h, err := b.shared.Head(ctx, jid); err == nil && h.Load.Target == "old" {
			t.Error("the shared tier holds the old load")
		}
		synctest.Wait()
		b.wantReturned("filled again", "a=1")
		synctest.Wait()
		b.store.On(broken)
		b.wantTarget("from the shared tier", "new")
		b.wantReturned("from the shared tier", "a=1")
	})
}

// TestReadJoinsNoLandedFlight: a reader that comes after a write was acknowledged must not get the
// answer of a reading that had taken in the writes before.
func TestReadJoinsNoLandedFlight(t *testing.T) {
	b := open(t, forgetful)
	b.write(load("old"))
	p := newPause("fill", true) // the flight has landed, and has not answered
	b.cache.On(p.hook)
	var reader sync.WaitGroup
	reader.Go(func() { b.target() })
	<-p.reached
	written := make(chan struct{})
	go func() {
		defer close(written)
		b.write(load("new"))
		b.wantTarget("after the write", "new")
	}()
	p.letGo()
	reader.Wait()
	<-written
}

// TestWriteFails: an error of the store is the writer's, nothing is shown, and the cache does not
// claim to know.
func TestWriteFails(t *testing.T) {
	b := open(t)
	b.write(load("old"))
	b.store.On(func(_ context.Context, c proxytest.Call) error {
		if c.Op == "merge" && c.Done { // stored, and the answer was lost
			return errBroken
		}
		return nil
	})
	_, err := b.Write(ctx, load("new"))
	wantErr(t, "write", err, errBroken, nil)
	b.wantTarget("stored without an acknowledgement", "new")
	b.store.On(func(_ context.Context, c proxytest.Call) error {
		if c.Op == "merge" { // not stored
			return errBroken
		}
		return nil
	})
	_, err = b.Write(ctx, load("newer"))
	wantErr(t, "write", err, errBroken, nil)
	b.wantTarget("not stored", "new")
	if got := b.Stats.WriteErrors.Load(); got != 2 {
		t.Errorf("%d write errors; want 2", got)
	}
}

// TestWriteRefused: a write of which the store took nothing takes no job out of the cache.
func TestWriteRefused(t *testing.T) {
	for _, refusal := range []error{tiers.ErrFull, tiers.ErrOpen, tiers.ErrTooLarge, tiers.ErrInvalid} {
		b := open(t)
		b.write(load("*"))
		b.store.On(func(context.Context, proxytest.Call) error { return refusal })
		_, err := b.Write(ctx, ret("a", 1))
		wantErr(t, "write", err, refusal, nil)
		b.wantTarget("after "+refusal.Error(), "*")
		b.wantReturned("after "+refusal.Error(), "")
	}
}

// TestWriteFailsWhileRead: a read under way does not fill the cache with what may be old.
func TestWriteFailsWhileRead(t *testing.T) {
	b := open(t)
	b.write(load("old"))
	if err := b.cache.Evict(ctx, jid); err != nil {
		t.Fatal(err)
	}
	p := newPause("head", true)
	b.store.On(func(ctx context.Context, c proxytest.Call) error {
		if c.Op == "merge" && c.Done {
			return errBroken
		}
		return p.hook(ctx, c)
	})
	var reader sync.WaitGroup
	reader.Go(func() { b.target() })
	<-p.reached
	_, err := b.Write(ctx, load("new"))
	wantErr(t, "write", err, errBroken, nil)
	p.letGo()
	reader.Wait()
	b.wantTarget("the reader has gone on", "new")
}

func TestWriteRefusesBadFacts(t *testing.T) {
	long := string(make([]byte, job.MaxJIDBytes+1))
	b := open(t)
	for name, f := range map[string]job.Fact{
		"no jid": job.Load{}, "long jid": job.EndTime{JID: job.JID(long)},
		"no minion": job.Return{JID: jid}, "long minion": job.Return{JID: jid, Minion: job.Minion(long)},
		"long minion in a list": job.Minions{JID: jid, IDs: []job.Minion{"a", job.Minion(long)}},
		"no fact":               nil, "pointer": &job.NoCache{JID: jid},
	} {
		_, err := b.Write(ctx, load("*"), f)
		wantErr(t, name, err, tiers.ErrInvalid, nil)
	}
	if got := b.store.Calls("merge"); got != 0 {
		t.Errorf("the store got %d of them", got)
	}
	if outcomes, err := b.Write(ctx); len(outcomes) != 0 || err != nil {
		t.Errorf("no facts: %v, %v", outcomes, err)
	}
}

// TestWriteStamps: facts get versions in their order, unless they have one, and the master's id.
func TestWriteStamps(t *testing.T) {
	b := open(t)
	replayed := ret("b", 2)
	replayed.Version = job.VersionAt(now().Add(time.Hour))
	facts := []job.Fact{load("*"), ret("a", 1), replayed, job.Event{ID: job.EventID{1}}}
	given := slices.Clone(facts)
	b.write(facts...)
	if !reflect.DeepEqual(facts, given) {
		t.Error("Write changed the caller's facts")
	}
	b.write(job.EndTime{JID: jid, Text: "t"})
	h, err := b.Head(ctx, jid)
	if err != nil {
		t.Fatal(err)
	}
	page, err := b.Returns(ctx, jid, tiers.ReturnQuery{})
	if err != nil {
		t.Fatal(err)
	}
	events, err := b.Events(ctx, tiers.EventQuery{})
	if err != nil {
		t.Fatal(err)
	}
	if h.Load.Master != "master" || events.Events[0].Master != "master" || page.Returns[0].Master != "" {
		t.Errorf("masters %q, %q, %q; want it on load and event, not on the return",
			h.Load.Master, events.Events[0].Master, page.Returns[0].Master)
	}
	if a := page.Returns[0].Version; a <= h.Load.Version || h.Load.Version == 0 {
		t.Errorf("versions %d and then %d; want growing ones", h.Load.Version, a)
	}
	if got := page.Returns[1].Version; got != replayed.Version {
		t.Errorf("version %d of a replayed return; want %d", got, replayed.Version)
	}
	if h.EndTime.Version <= replayed.Version {
		t.Error("a fact written later is not newer than a replayed one")
	}
}

// TestSharedFails: a shared tier that fails, hangs or is slow neither fails nor delays a write.
func TestSharedFails(t *testing.T) {
	for name, hook := range map[string]proxytest.Hook{
		"fails": broken, "hangs": hanging, "is slow": slow(5 * time.Second),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := open(t, withShared)
				b.shared.On(hook)
				start := time.Now()
				b.write(load("*"))
				b.wantTarget("written", "*")
				if took := time.Since(start); took != 0 {
					t.Errorf("the write took %v", took)
				}
			})
		})
	}
}

// TestSharedLags: a shared tier that holds an old value is not asked before it has taken what it
// missed, or forgotten the job.
func TestSharedLags(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, withShared, forgetful)
		b.write(load("old"))
		synctest.Wait()
		b.wantTarget("fills the shared tier", "old")
		synctest.Wait()
		if !b.shared.Holds(jid) {
			t.Fatal("the shared tier does not hold the job: the test shows nothing")
		}

		b.shared.On(broken)
		b.write(load("new"))
		synctest.Wait()
		b.wantTarget("the shared tier is away", "new")
		if got := b.Stats.MissedFacts.Load(); got != 1 {
			t.Errorf("%d missed facts; want 1", got)
		}

		b.shared.On(nil)
		b.wantTarget("it is back, with the old value", "new")
		if got := b.answers("shared", proxy.Skipped); got != 2 {
			t.Errorf("the shared tier was skipped %d times; want twice", got)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if b.shared.Calls("evict") == 0 || b.shared.Holds(jid) {
			t.Error("the shared tier was not made to forget the job")
		}
		b.wantTarget("it is asked again", "new")
		synctest.Wait()
		b.store.On(broken)
		b.wantTarget("it was filled again", "new")
	})
}

// TestSharedIsAhead: what a shared tier took of a write that the store refused is not served.
func TestSharedIsAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, withShared, forgetful)
		b.write(load("old"))
		synctest.Wait()
		b.wantTarget("fills the shared tier", "old")
		synctest.Wait()
		b.store.On(func(context.Context, proxytest.Call) error { return tiers.ErrFull })
		_, err := b.Write(ctx, load("refused"))
		wantErr(t, "write", err, tiers.ErrFull, nil)
		b.store.On(nil)
		b.wantTarget("refused", "old")
		time.Sleep(time.Second)
		synctest.Wait()
		b.wantTarget("repaired", "old")
	})
}

// TestSharedWriteUnderWay: a shared tier with a write on its way is not asked for the job.
func TestSharedWriteUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, withShared, forgetful)
		b.write(load("old"))
		synctest.Wait()
		b.wantTarget("fills the shared tier", "old")
		synctest.Wait()
		p := newPause("merge", false)
		b.shared.On(p.hook)
		b.write(load("new"))
		b.wantTarget("the write is on its way", "new")
		p.letGo()
		synctest.Wait()
		b.store.On(broken)
		b.wantTarget("it has come", "new")
	})
}

// TestWriteBursts is case S71, its first half: after a burst every job is read as it was written
// last, whatever the cache let go.
func TestWriteBursts(t *testing.T) {
	const jobs, workers = 2000, 8
	b, start := open(t), now() // one start: jids of workers that each look at the clock may be the same
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := w; i < jobs; i += workers {
				l := load("first")
				l.JID = job.NewJID(start.Add(time.Duration(i) * time.Microsecond))
				for _, target := range []string{"first", "second"} {
					l.Target = target
					if _, err := b.Write(ctx, l); err != nil {
						t.Error(err)
					}
				}
				if h, err := b.Head(ctx, l.JID); err != nil || h.Load.Target != "second" {
					t.Errorf("job %d: %+v, %v", i, h.Load, err)
				}
			}
		})
	}
	wg.Wait()
}

// TestCacheThatFails: a cache that cannot take a fact is not asked for the job.
func TestCacheThatFails(t *testing.T) {
	b := open(t)
	b.write(load("old"))
	b.cache.On(func(_ context.Context, c proxytest.Call) error {
		if c.Op == "merge" {
			return errors.New("too large")
		}
		return nil
	})
	b.write(ret("a", 1))
	b.write(load("new"))
	b.wantTarget("written", "new")
	b.wantReturned("written", "a=1")
}

// TestWriteDiffersFromAnother: a return that differs from one that another proxy stored, and that the
// cache has not seen yet, makes the one that stays readable, not neither.
func TestWriteDiffersFromAnother(t *testing.T) {
	b := open(t, func(o *proxy.Options, _ *bed) { o.Staleness = time.Hour })
	b.write(load("*"))
	b.wantReturned("published", "")
	first := ret("a", 1)
	first.Version = 1
	if _, err := b.store.Merge(ctx, []job.Fact{first}); err != nil {
		t.Fatal(err)
	}
	if got := b.write(ret("a", 2))[0]; got != job.Differs {
		t.Fatalf("outcome %v; want differs", got)
	}
	b.wantReturned("after a differing return", "a=1")
}
