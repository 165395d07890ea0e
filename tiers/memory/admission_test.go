package memory

import (
	"context"
	"fmt"
	"testing"

	"saltern/job"
	"saltern/tiers"
)

// These tests stop ristretto's goroutine, or wait for it, and so are inside the package.

func create(t *testing.T, o Options) *Cache {
	t.Helper()
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func number(n int) job.JID { return job.JID(fmt.Sprint("job", n)) }

// fillJobs fills the cache with small jobs numbered from a up to b.
func fillJobs(t *testing.T, c *Cache, a, b int) {
	t.Helper()
	for n := a; n < b; n++ {
		s := tiers.Snapshot{Head: job.Head{JID: number(n)}, HasReturns: true}
		if err := c.Fill(context.Background(), s); err != nil {
			t.Fatal(err)
		}
	}
}

func isHeld(c *Cache, n int) bool {
	_, err := c.Head(context.Background(), number(n))
	return err == nil
}

// empty checks that nothing is left over when all jobs were evicted.
func empty(t *testing.T, c *Cache, jobs int) {
	t.Helper()
	for n := range jobs {
		if err := c.Evict(context.Background(), number(n)); err != nil {
			t.Fatal(err)
		}
	}
	c.main.Wait()
	if s := c.Stats(); s.Entries != 0 || s.Bytes != 0 {
		t.Errorf("%d entries and %d bytes are left over", s.Entries, s.Bytes)
	}
	if c.window.bytes != 0 || c.window.len != 0 || c.pending.Load() != 0 {
		t.Errorf("%d bytes and %d entries are left in the window, %d bytes pending",
			c.window.bytes, c.window.len, c.pending.Load())
	}
	if left := c.main.RemainingCost(); left != c.main.MaxCost() {
		t.Errorf("ristretto has %d of %d left", left, c.main.MaxCost())
	}
}

// While there is room no job is lost on its ways between the window and ristretto.
func TestNothingIsLostWhileThereIsRoom(t *testing.T) {
	const jobs = 9000
	c := create(t, Options{WindowShare: 0.05}) // room for some 5000 in the window
	all := func(when string) {
		t.Helper()
		for n := range jobs {
			if !isHeld(c, n) {
				t.Fatalf("%s: job %d is not held; %+v", when, n, c.Stats())
			}
		}
	}
	fillJobs(t, c, 0, jobs)
	all("filled")
	c.main.Wait()
	all("let into ristretto")
	for round := range 3 {
		for n := range jobs / 10 {
			r := job.Return{JID: number(n), Minion: job.Minion(fmt.Sprint("m", round))}
			if _, err := c.Merge(context.Background(), []job.Fact{r}); err != nil {
				t.Fatal(err)
			}
		}
		c.main.Wait()
		all("grown")
	}
	empty(t, c, jobs)
}

// While ristretto's goroutine stands still, what waits for it is bounded, and held until it is looked
// at; what does not fit is forgotten.
func TestBurst(t *testing.T) {
	for _, c := range []struct {
		name     string
		maxBytes int64
	}{
		{"more bytes than may be pending", 16 << 20},
		{"more Sets than ristretto's buffer has room for", 400 << 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			cache := create(t, Options{MaxBytes: c.maxBytes, WindowShare: 0.05})
			inWindow := int(cache.window.max / entryOverhead)
			burst := inWindow + 40_000
			stop := stopRistretto(cache)
			fillJobs(t, cache, 0, burst)
			if b := cache.pending.Load(); b > cache.maxPending+cache.maxJob {
				t.Errorf("%d bytes are pending; the bound is %d", b, cache.maxPending)
			}
			s := cache.Stats()
			if s.Rejected == 0 || uint64(s.Entries)+s.Rejected != uint64(burst)+1 {
				t.Errorf("%+v; want entries and rejected to be the %d filled", s, burst+1)
			}
			stop()
			cache.main.Wait()
			if limit := c.maxBytes + c.maxBytes/16; cache.Stats().Bytes > limit {
				t.Errorf("%d bytes are held; want at most %d", cache.Stats().Bytes, limit)
			}
			cache.main.Del("stopper")
			empty(t, cache, burst)
		})
	}
}

// stopRistretto makes ristretto's goroutine wait for the cost of an entry, until it is let go.
func stopRistretto(c *Cache) (letGo func()) {
	gate := make(chan struct{})
	e := newEntry(&shard{jobs: map[job.JID]*entry{}}, tiers.Snapshot{Head: job.Head{JID: "stopper"}}, 0, 0)
	e.shard.mu.Lock()
	go func() {
		<-gate
		e.shard.mu.Unlock()
	}()
	e.shard.jobs[e.jid] = e
	c.counts.entries.Add(1)
	c.counts.bytes.Add(e.cost)
	t := &ticket{e: e, size: e.cost}
	e.ticket = t
	c.pending.Add(t.size)
	c.main.Set("stopper", t, 0)
	return func() { close(gate) }
}

// Jobs that ristretto refuses leave the index.
func TestRefusedAreForgotten(t *testing.T) {
	c := create(t, Options{MaxBytes: 1 << 20})
	filled := 0
	for round := range 40 {
		fillJobs(t, c, filled, filled+100)
		filled += 100
		c.main.Wait()
		for n := range filled { // so often that new ones are refused
			isHeld(c, n)
		}
		if s := c.Stats(); s.Bytes > 1<<20+1<<16 {
			t.Fatalf("round %d: %+v; more is held than the bound", round, s)
		}
	}
	// How many depends on which reads ristretto counted; with the race detector it counts few.
	t.Logf("%+v", c.Stats())
	empty(t, c, filled)
}

// What is read again and again outlives a flood of jobs that nobody reads: that is ristretto's part.
// Between two reads of a hot job more is written than the cache has room for, so an LRU hits none. (The
// race detector makes sync.Pool lose things, and with it ristretto's counts of reads: it then hits 19 %
// instead of 50.)
func TestHotJobsOutliveAFlood(t *testing.T) {
	const hot, flood = 400, 40_000
	c := create(t, Options{MaxBytes: 1 << 20})
	reads, hits := 0, 0
	for n := range flood {
		fillJobs(t, c, hot+n, hot+n+1)
		if n%16 == 0 {
			c.main.Wait() // a daemon writes no faster than ristretto
		}
		if n%5 != 0 {
			continue
		}
		reads++
		h := n / 5 % hot
		if isHeld(c, h) {
			hits++
			continue
		}
		fillJobs(t, c, h, h+1)
	}
	ratio := float64(hits) / float64(reads)
	t.Logf("hit ratio %.3f, %+v", ratio, c.Stats())
	if ratio < 0.15 {
		t.Errorf("hit ratio %.3f; want at least 0.15", ratio)
	}
}
