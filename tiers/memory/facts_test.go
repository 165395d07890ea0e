package memory_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"saltern/job"
	"saltern/tiers"
	"saltern/tiers/memory"
)

var born = time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)

// jidAt is the jid of the nth job.
func jidAt(n int) job.JID { return job.NewJID(born.Add(time.Duration(n) * time.Millisecond)) }

func publish(jid job.JID) job.Load {
	return job.Load{
		JID: jid, Version: 1, Rank: job.RankPublish, Fun: "state.apply", Target: "*", User: "root",
		Payload: make([]byte, 300),
	}
}

func ret(jid job.JID, minion int) job.Return {
	return job.Return{
		JID: jid, Minion: job.Minion(fmt.Sprintf("web%05d", minion)), Version: 2, Fun: "state.apply",
		Ret: make([]byte, 20), Rest: make([]byte, 100), Times: make([]byte, 40),
	}
}

// fill fills a cache with a job that has a load and no returns yet.
func fill(t testing.TB, c *memory.Cache, load job.Load, ttl time.Duration) {
	t.Helper()
	s := tiers.Snapshot{Head: job.Head{JID: load.JID, Load: &load}, HasReturns: true, TTL: ttl}
	if err := c.Fill(context.Background(), s); err != nil {
		t.Fatal(err)
	}
}

func merge(t testing.TB, c *memory.Cache, facts ...job.Fact) {
	t.Helper()
	if _, err := c.Merge(context.Background(), facts); err != nil {
		t.Fatal(err)
	}
}

// has says whether the cache has the head of a job; it must be right if so.
func has(t testing.TB, c *memory.Cache, jid job.JID) bool {
	t.Helper()
	h, err := c.Head(context.Background(), jid)
	switch {
	case err == nil && h.JID != jid:
		t.Errorf("Head(%q) is of job %q", jid, h.JID)
	case err != nil && !errors.Is(err, tiers.ErrNotFound):
		t.Errorf("Head(%q) = %v", jid, err)
	}
	return err == nil
}

// returned is how many returns of a job the cache has, or -1 where it does not know.
func returned(t testing.TB, c *memory.Cache, jid job.JID) int {
	t.Helper()
	page, err := c.Returns(context.Background(), jid, tiers.ReturnQuery{})
	if errors.Is(err, tiers.ErrNotFound) {
		return -1
	}
	if err != nil {
		t.Fatal(err)
	}
	return len(page.Returns)
}
