package memory_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"saltern/job"
	"saltern/tiers"
	"saltern/tiers/memory"
)

// S71, S91: jobs of random sizes, several times what there is room for. The heap stays within 1.3
// times the bound.
func TestMemoryIsBounded(t *testing.T) {
	const maxBytes = 16 << 20
	before := heap()
	c := open(t, memory.Options{MaxBytes: maxBytes})
	r := rand.New(rand.NewPCG(1, 1))
	written, peak := 0, uint64(0)
	for i := 0; written < 6*maxBytes; i++ {
		load := publish(jidAt(i))
		load.Payload = make([]byte, r.IntN(2000))
		written += len(load.Payload)
		fill(t, c, load, time.Hour)
		for m := range r.IntN(30) {
			f := ret(load.JID, m)
			f.Ret = make([]byte, r.IntN(1000))
			written += len(f.Ret)
			merge(t, c, f)
		}
		if i%500 == 0 {
			peak = max(peak, heap())
		}
	}
	s := c.Stats()
	t.Logf("%d MiB written, %.2f of the bound used, %+v", written>>20, float64(peak-before)/maxBytes, s)
	if limit := uint64(maxBytes * 13 / 10); peak-before > limit {
		t.Errorf("the heap grew by %d bytes; want at most %d", peak-before, limit)
	}
	if s.Bytes < maxBytes/2 {
		t.Errorf("%d bytes are held; want the room to be used", s.Bytes)
	}
	runtime.KeepAlive(c)
}

// Small jobs are mostly overhead, which counts too.
func TestMemoryOfSmallJobsIsBounded(t *testing.T) {
	const maxBytes = 16 << 20
	before := heap()
	c := open(t, memory.Options{MaxBytes: maxBytes})
	for i := range 100_000 {
		jid := jidAt(i)
		s := tiers.Snapshot{Head: job.Head{JID: jid, Minions: []job.Minion{"a"}}, HasReturns: true}
		if i%2 == 1 {
			s = tiers.Snapshot{Head: job.Head{JID: jid}, Absent: true, TTL: time.Hour}
		}
		if err := c.Fill(context.Background(), s); err != nil {
			t.Fatal(err)
		}
	}
	used := heap() - before
	t.Logf("%.2f of the bound used, %+v", float64(used)/maxBytes, c.Stats())
	if limit := uint64(maxBytes * 13 / 10); used > limit {
		t.Errorf("the heap grew by %d bytes; want at most %d", used, limit)
	}
	runtime.KeepAlive(c)
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// S96: jobs that all expire at one time make room as others do, and what became of each is counted
// once.
func TestCountsAddUp(t *testing.T) {
	now := born
	c := open(t, memory.Options{MaxBytes: 1 << 20, Now: func() time.Time { return now }})
	const n = 20_000
	for i := range n / 2 {
		fill(t, c, publish(jidAt(i)), time.Minute)
	}
	now = now.Add(time.Hour)
	for i := range n / 2 {
		fill(t, c, publish(jidAt(n+i)), time.Minute)
	}
	// Nothing is under way in ristretto but what it has not looked at, which is held.
	s := c.Stats()
	if got := uint64(s.Entries) + s.Evicted + s.Expired + s.Rejected; got != n {
		t.Errorf("%+v: these are %d of %d jobs", s, got, n)
	}
	if s.Expired == 0 || s.Evicted+s.Rejected == 0 || s.Entries == 0 {
		t.Errorf("%+v; want some of each", s)
	}
}

// A job that outgrows half of the window is held without its returns, as its head is read most; one
// whose head alone does is not held.
func TestLargeJobs(t *testing.T) {
	c := open(t, memory.Options{MaxBytes: 1 << 20})
	small, large, broad := jidAt(0), jidAt(1), jidAt(2)
	for _, jid := range []job.JID{small, large, broad} {
		fill(t, c, publish(jid), 0)
	}
	for i := range 1000 {
		merge(t, c, ret(large, i))
	}
	if !has(t, c, large) || returned(t, c, large) != -1 {
		t.Errorf("a large job: head %v, %d returns; want the head alone", has(t, c, large), returned(t, c, large))
	}
	var ids []job.Minion
	for i := range 10_000 {
		ids = append(ids, job.Minion(fmt.Sprint("minion", i)))
	}
	merge(t, c, job.Minions{JID: broad, Version: 1, IDs: ids})
	if has(t, c, broad) {
		t.Error("a job with a large head is held")
	}
	if !has(t, c, small) || returned(t, c, small) != 0 {
		t.Error("a large job pushed out a small one")
	}
	if s := c.Stats(); s.Rejected != 1 || s.Entries != 2 {
		t.Errorf("%+v; want 1 rejected and 2 entries", s)
	}
}

// Whoever asks for jobs that do not exist pushes out none that do.
func TestAbsentJobsHaveTheirOwnRoom(t *testing.T) {
	c := open(t, memory.Options{MaxBytes: 1 << 20})
	fill(t, c, publish(jidAt(0)), 0)
	for i := range 10_000 {
		s := tiers.Snapshot{Head: job.Head{JID: job.JID(fmt.Sprint("none", i))}, Absent: true, TTL: time.Hour}
		if err := c.Fill(context.Background(), s); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Head(context.Background(), "none9999"); !errors.Is(err, tiers.ErrAbsent) {
		t.Errorf("the last absent job: %v; want ErrAbsent", err)
	}
	if s := c.Stats(); !has(t, c, jidAt(0)) || s.Evicted == 0 {
		t.Errorf("%+v; want absent jobs evicted and the job held", s)
	}
}
