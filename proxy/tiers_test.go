package proxy_test

import (
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"saltern/job"
	"saltern/proxy"
	"saltern/proxy/proxytest"
	"saltern/tiers"
	"saltern/tiers/embedded"
	"saltern/tiers/faulty"
)

// real is a proxy as the daemon has it: over the cache in memory and the embedded store, with faults
// between.
type real struct {
	*bed
	disk *faulty.Store
}

func openReal(t testing.TB, dir string, cacheBytes int) *real {
	store, err := embedded.Open(embedded.Options{
		Dir: dir, Logger: slog.New(slog.DiscardHandler), Now: now,
		OnFatal: func(err error) { t.Errorf("fatal error of the store: %v", err) },
	})
	if err != nil {
		t.Fatal(err)
	}
	r := &real{disk: faulty.WrapStore(store)}
	r.bed = open(t, func(o *proxy.Options, _ *bed) {
		o.Cache, o.Store = newMemory(t, int64(cacheBytes)), r.disk
	})
	return r
}

// TestTiersTogether is the life of a job, with a cache that holds it and with one too small to.
func TestTiersTogether(t *testing.T) {
	for _, cacheBytes := range []int{8 << 20, 4 << 10} {
		t.Run(fmt.Sprintf("cache of %d bytes", cacheBytes), func(t *testing.T) {
			dir := t.TempDir()
			r := openReal(t, dir, cacheBytes)
			r.wantTarget("before", "not found")
			r.write(load("*"), job.Minions{JID: jid, IDs: []job.Minion{"a", "b", "c"}})
			r.wantTarget("published", "*")
			late := load("of a return")
			late.Rank = job.RankReturn
			for i, m := range []job.Minion{"c", "a", "b"} {
				if got := r.write(late, ret(m, byte(i)))[1]; got != job.Stored {
					t.Errorf("return of %s: %v", m, got)
				}
			}
			r.wantReturned("all returned", "a=1 b=2 c=0")
			if got := r.write(ret("a", 9))[0]; got != job.Differs {
				t.Errorf("another return of a: %v; want differs", got)
			}
			if got := r.write(ret("a", 1))[0]; got != job.Repeat {
				t.Errorf("the same return of a: %v; want repeat", got)
			}
			r.wantReturned("repeats", "a=1 b=2 c=0")
			page, err := r.List(ctx, tiers.Filter{State: job.Complete})
			if err != nil || len(page.Jobs) != 1 || page.Jobs[0].JID != jid {
				t.Errorf("list of complete jobs: %+v, %v", page.Jobs, err)
			}
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}

			again := openReal(t, dir, cacheBytes)
			again.wantTarget("after a restart", "*")
			again.wantReturned("after a restart", "a=1 b=2 c=0")
		})
	}
}

// TestTiersTwoWrites is case S04 with the tiers of the daemon: 2,000 new jobs, two writes each without a
// pause, and the second is read.
func TestTiersTwoWrites(t *testing.T) {
	const jobs, workers = 2000, 16
	r := openReal(t, t.TempDir(), 256<<10)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := w; i < jobs && !t.Failed(); i += workers {
				l := load("partial")
				l.JID = job.NewJID(now().Add(time.Duration(i) * time.Microsecond))
				r.writeLoad(l)
				l.Target = "full"
				r.writeLoad(l)
				if h, err := r.Head(ctx, l.JID); err != nil || h.Load.Target != "full" {
					t.Errorf("job %d: %+v, %v", i, h.Load, err)
				}
			}
		})
	}
	wg.Wait()
}

func (b *bed) writeLoad(l job.Load) {
	if _, err := b.Write(ctx, l); err != nil {
		b.t.Errorf("write: %v", err)
	}
}

// TestTiersOversize is case S71, its second half: a job above what the cache takes, over one that it
// holds, is read as it was written last.
func TestTiersOversize(t *testing.T) {
	r := openReal(t, t.TempDir(), 64<<10)
	for i, size := range []int{10, 100_000, 10, 1_000_000, 20} {
		l := load(fmt.Sprint(i))
		l.Payload = make([]byte, size)
		l.Payload[0] = 0x80
		r.write(l)
		h, err := r.Head(ctx, jid)
		if err != nil || h.Load.Target != fmt.Sprint(i) || len(h.Load.Payload) != size {
			t.Errorf("write %d of %d bytes: %v", i, size, err)
		}
		large := ret(job.Minion(fmt.Sprint(i)), byte(i))
		large.Rest = make([]byte, size)
		r.write(large)
	}
	r.wantReturned("at the end", "0=0 1=1 2=2 3=3 4=4")
}

// TestTiersExact is the model of TestReadsAreExact over the daemon's tiers.
func TestTiersExact(t *testing.T) {
	r := openReal(t, t.TempDir(), 32<<10)
	checkExact(t, r.Proxy, nil)
}

// TestTiersStoreAway: the store's failures are told from absence, what the cache holds is still read,
// and a failed write is neither shown nor lost from sight.
func TestTiersStoreAway(t *testing.T) {
	r := openReal(t, t.TempDir(), 8<<20)
	r.write(load("*"))
	other := load("other")
	other.JID = "20270105120000000001"
	r.disk.Set(faulty.Fault{Err: errBroken}, faulty.Head)
	r.disk.Set(faulty.Fault{Err: tiers.ErrOpen}, faulty.Merge)
	_, err := r.Head(ctx, other.JID)
	wantErr(t, "unknown job", err, tiers.ErrUnavailable, tiers.ErrNotFound)
	_, err = r.Write(ctx, ret("a", 1))
	wantErr(t, "write", err, tiers.ErrOpen, nil)
	r.wantTarget("in the cache", "*")
	r.wantReturned("in the cache", "")
	r.disk.Clear()
	r.wantTarget("the store is back", "*")
	r.write(other, ret("a", 1))
	if h, err := r.Head(ctx, other.JID); err != nil || h.Load.Target != "other" {
		t.Errorf("the other job: %+v, %v", h.Load, err)
	}
	r.wantReturned("written again", "a=1")
}

// TestTiersLostAnswer: a write that is stored though its writer got an error is read afterwards.
func TestTiersLostAnswer(t *testing.T) {
	r := openReal(t, t.TempDir(), 8<<20)
	r.write(load("old"))
	r.disk.Set(faulty.Fault{Err: errBroken, After: true, Times: 1}, faulty.Merge)
	_, err := r.Write(ctx, load("new"))
	wantErr(t, "write", err, errBroken, nil)
	r.wantTarget("the answer was lost", "new")
}

// TestTiersHangingShared: a shared tier whose driver hangs and looks at no context neither delays a
// write nor fails a read, and Close says that it could not be closed.
func TestTiersHangingShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := faulty.Wrap(&proxytest.Cache{Called: "shared", Leases: true})
		b := open(t, forgetful, func(o *proxy.Options, _ *bed) { o.Shared = []tiers.Tier{shared} }, withGuards)
		shared.Set(faulty.Fault{Hang: true, Deaf: true}, faulty.Head, faulty.Returns, faulty.Merge, faulty.Evict)
		for i := range 20 {
			start := time.Now()
			b.write(ret(job.Minion(fmt.Sprint(i)), 1))
			if took := time.Since(start); took != 0 {
				t.Errorf("write %d took %v", i, took)
			}
			if _, err := b.Head(ctx, jid); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Second)
		}
		err := b.Close()
		wantErr(t, "Close", err, tiers.ErrTimeout, nil)
		shared.Clear()
		synctest.Wait()
	})
}
