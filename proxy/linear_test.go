package proxy_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"saltern/job"
	"saltern/proxy"
	"saltern/proxy/proxytest"
	"saltern/tiers"
	"saltern/tiers/memory"
)

// TestReadsAreExact has writers and readers work on few jobs at once, over caches that hold all,
// little or nothing and forget at random, and over a shared tier that fails at random. The model: a
// read gives all that was acknowledged before it began, and nothing that no one had begun to write
// when it ended. (A fact that is not acknowledged yet may be seen by one read and not by the next: the
// first asked the store, the second the cache.)
func TestReadsAreExact(t *testing.T) {
	caches := map[string]func(t *testing.T) proxy.Cache{
		"map":       func(*testing.T) proxy.Cache { return &proxytest.Cache{} },
		"forgetful": func(*testing.T) proxy.Cache { return &proxytest.Cache{Forgetful: true} },
		"memory":    func(t *testing.T) proxy.Cache { return newMemory(t, 1<<20) },
		"tiny":      func(t *testing.T) proxy.Cache { return newMemory(t, 16<<10) },
	}
	for name, cache := range caches {
		for _, shared := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, shared tier %v", name, shared), func(t *testing.T) {
				c := cache(t)
				chaos := []tiers.Filler{c}
				b := open(t, func(o *proxy.Options, b *bed) {
					o.Cache = c
					if shared {
						withShared(o, b)
						b.shared.On(flaky)
					}
					b.store.On(yielding)
				})
				if shared {
					chaos = append(chaos, b.shared)
				}
				checkExact(t, b.Proxy, chaos)
			})
		}
	}
}

func newMemory(t testing.TB, bytes int64) *memory.Cache {
	c, err := memory.New(memory.Options{MaxBytes: bytes})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// yielding lets others run at any place.
func yielding(context.Context, proxytest.Call) error {
	for range rand.IntN(4) {
		runtime.Gosched()
	}
	return nil
}

// flaky fails one call in five.
func flaky(ctx context.Context, c proxytest.Call) error {
	if rand.IntN(5) == 0 {
		return errBroken
	}
	return yielding(ctx, c)
}

// ledger is what is known of the writes to one job.
type ledger struct {
	jid          job.JID
	begun, acked atomic.Int64               // the load's number; one writer
	minions      [exactMinions]atomic.Int32 // 0, begun or acked
}

const (
	exactJobs    = 3
	exactMinions = 20
	exactReaders = 4

	isBegun, isAcked = 1, 2
)

// exactWrites is how many loads each job gets.
func exactWrites() int64 {
	if os.Getenv("SALTERN_LONG") != "" {
		return 1000
	}
	return 50
}

func checkExact(t *testing.T, p *proxy.Proxy, chaos []tiers.Filler) {
	var writers, readers sync.WaitGroup
	var stop atomic.Bool
	for i := range exactJobs {
		l := &ledger{jid: job.JID(fmt.Sprintf("2027010512000000000%d", i))}
		writers.Go(func() { l.writeLoads(t, p) })
		writers.Go(func() { l.writeReturns(t, p) })
		for range exactReaders {
			readers.Go(func() {
				for !stop.Load() && !t.Failed() {
					l.readHead(t, p)
					l.readReturns(t, p)
				}
			})
		}
		for _, c := range chaos {
			readers.Go(func() {
				for !stop.Load() {
					_ = c.Evict(ctx, l.jid)
					for range rand.IntN(200) {
						runtime.Gosched()
					}
				}
			})
		}
	}
	writers.Wait()
	stop.Store(true)
	readers.Wait()
}

func (l *ledger) writeLoads(t *testing.T, p *proxy.Proxy) {
	for n := int64(1); n <= exactWrites(); n++ {
		l.begun.Store(n)
		f := load(strconv.FormatInt(n, 10))
		f.JID = l.jid
		if _, err := p.Write(ctx, f); err != nil {
			t.Errorf("write: %v", err)
		}
		l.acked.Store(n)
	}
}

func (l *ledger) writeReturns(t *testing.T, p *proxy.Proxy) {
	for n := range exactMinions {
		f := ret(job.Minion(fmt.Sprintf("%03d", n)), 1)
		f.JID = l.jid
		l.minions[n].Store(isBegun)
		late := load("of a return")
		late.JID, late.Rank = l.jid, job.RankReturn
		if _, err := p.Write(ctx, late, f); err != nil {
			t.Errorf("write: %v", err)
		}
		l.minions[n].Store(isAcked)
	}
}

func (l *ledger) readHead(t *testing.T, p *proxy.Proxy) {
	least := l.acked.Load()
	h, err := p.Head(ctx, l.jid)
	most := l.begun.Load()
	n := int64(0)
	if err == nil && h.Load != nil && h.Load.Rank == job.RankPublish {
		n, err = strconv.ParseInt(h.Load.Target, 10, 64)
	}
	if err != nil && least > 0 || n < least || n > most {
		t.Errorf("read load %d of job %s, %v; want from %d to %d", n, l.jid, err, least, most)
	}
}

func (l *ledger) readReturns(t *testing.T, p *proxy.Proxy) {
	acked := make(map[job.Minion]bool)
	for n := range l.minions {
		if l.minions[n].Load() == isAcked {
			acked[job.Minion(fmt.Sprintf("%03d", n))] = true
		}
	}
	page, err := p.Returns(ctx, l.jid, tiers.ReturnQuery{})
	if err != nil && len(acked) > 0 {
		t.Errorf("returns of job %s: %v", l.jid, err)
	}
	for _, r := range page.Returns {
		delete(acked, r.Minion)
		if n, err := strconv.Atoi(string(r.Minion)); err != nil || l.minions[n].Load() < isBegun {
			t.Errorf("return of %s, which no one has written", r.Minion)
		}
	}
	if err == nil && len(acked) > 0 {
		t.Errorf("%d acknowledged returns of job %s were not read: %v", len(acked), l.jid, acked)
	}
}
