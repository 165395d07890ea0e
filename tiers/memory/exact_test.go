package memory_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"saltern/job"
	"saltern/tiers"
	"saltern/tiers/memory"
)

// S04: what was filled or merged is read at once, 10,000 times of 10,000.
func TestReadsWhatWasWritten(t *testing.T) {
	c := open(t, memory.Options{MaxBytes: 1 << 20})
	for i := range 10_000 {
		jid := jidAt(i)
		load := publish(jid)
		load.Rank = job.RankLoad
		fill(t, c, load, time.Hour)
		merge(t, c, publish(jid))
		h, err := c.Head(context.Background(), jid)
		if err != nil || h.Load.Rank != job.RankPublish {
			t.Fatalf("job %d: Head = %+v, %v; want the publish", i, h.Load, err)
		}
	}
}

// truth is a durable store of some jobs, and the cache before it, used as the proxy does: calls of the
// cache for one job are under one lock, which is not held while a snapshot is made or used.
type truth struct {
	mu      sync.Mutex // guards the rest
	minions map[job.Minion]bool
	writes  int
}

// X7, S04, S05: the cache has room for few of the jobs, so that entries are evicted, refused and filled
// all the time. A hit has never less than what was written before it began.
func TestHitsAreExactUnderEviction(t *testing.T) {
	const jobs, workers, steps = 200, 8, 5000
	c := open(t, memory.Options{MaxBytes: 256 << 10})
	truths := make([]truth, jobs)
	for i := range truths {
		truths[i].minions = map[job.Minion]bool{}
	}
	hits := 0
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(w)))
			mine := 0
			for n := range steps {
				i := min(r.IntN(jobs), r.IntN(jobs))
				if truths[i].step(t, c, jidAt(i), r.IntN(10), w*steps+n) {
					mine++
				}
			}
			truths[0].mu.Lock()
			hits += mine
			truths[0].mu.Unlock()
		})
	}
	wg.Wait()
	s := c.Stats()
	t.Logf("%d hits; %+v", hits, s)
	if hits == 0 || s.Evicted+s.Rejected == 0 {
		t.Error("nothing was hit, or nothing evicted: the test shows nothing")
	}
	for i := range truths {
		_ = c.Evict(context.Background(), jidAt(i))
	}
	if s := c.Stats(); s.Entries != 0 || s.Bytes != 0 {
		t.Errorf("%d entries and %d bytes are left when all were evicted", s.Entries, s.Bytes)
	}
}

// step writes, forgets or reads a job, and says whether it was a hit.
func (tr *truth) step(t *testing.T, c *memory.Cache, jid job.JID, what, n int) (hit bool) {
	ctx := context.Background()
	switch {
	case what < 2:
		tr.mu.Lock()
		defer tr.mu.Unlock()
		if tr.writes++; tr.writes%20 == 0 { // or no job would fit in the end
			clear(tr.minions)
			_ = c.Evict(ctx, jid)
		}
		id := job.Minion(fmt.Sprint("m", n))
		tr.minions[id] = true
		merge(t, c, job.Return{JID: jid, Minion: id, Version: 1, Ret: make([]byte, 100)})
		return false
	case what < 3:
		tr.mu.Lock()
		defer tr.mu.Unlock()
		_ = c.Evict(ctx, jid)
		return false
	}
	page, err := c.Returns(ctx, jid, tiers.ReturnQuery{})
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if err != nil {
		tr.refill(t, c, jid, err)
		return false
	}
	// Writes beside this read may have come after it; so ask once more, with none beside it.
	page, err = c.Returns(ctx, jid, tiers.ReturnQuery{})
	if err != nil {
		return false
	}
	if len(page.Returns) != len(tr.minions) {
		t.Errorf("a hit has %d returns; %d were written", len(page.Returns), len(tr.minions))
	}
	for _, r := range page.Returns {
		if !tr.minions[r.Minion] {
			t.Errorf("a hit has a return of %q that was not written", r.Minion)
		}
	}
	return true
}

func (tr *truth) refill(t *testing.T, c *memory.Cache, jid job.JID, err error) {
	if !errors.Is(err, tiers.ErrNotFound) {
		t.Errorf("Returns = %v", err)
	}
	s := tiers.Snapshot{Head: job.Head{JID: jid}, HasReturns: true}
	for id := range tr.minions {
		s.Returns = append(s.Returns, job.Return{JID: jid, Minion: id, Version: 1, Ret: make([]byte, 100)})
	}
	if err := c.Fill(context.Background(), s); err != nil {
		t.Error(err)
	}
}

// A job that grows while ristretto holds it goes back to the window, again and again.
func TestGrowsInRistretto(t *testing.T) {
	c := open(t, memory.Options{MaxBytes: 1 << 20})
	for round := range 20 {
		if !has(t, c, jidAt(0)) {
			fill(t, c, publish(jidAt(0)), 0)
			for i := range round {
				merge(t, c, ret(jidAt(0), i))
			}
		}
		merge(t, c, ret(jidAt(0), round))
		if got := returned(t, c, jidAt(0)); got != round+1 {
			t.Fatalf("round %d: %d returns; want %d", round, got, round+1)
		}
		for i := range 500 { // more than the window has room for
			fill(t, c, publish(jidAt(1+round*500+i)), 0)
		}
	}
}
