package embedded_test

import (
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"saltern/job"
	"saltern/tiers/embedded"
)

// open opens a store on fs and closes it after the test. Options that are not set are the test's.
func open(t testing.TB, o embedded.Options) *embedded.Store {
	t.Helper()
	if o.Dir == "" {
		o.Dir = "store"
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s, err := embedded.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil && o.OnFatal == nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

// openRaw opens what is under a store that is closed.
func openRaw(t *testing.T, fs vfs.FS) *pebble.DB {
	t.Helper()
	db, err := pebble.Open("store", &pebble.Options{FS: fs, FormatMajorVersion: pebble.FormatTableFormatV6})
	if err != nil {
		t.Fatal(err)
	}
	return db
}

func merge(t testing.TB, s *embedded.Store, facts ...job.Fact) []job.Outcome {
	t.Helper()
	outcomes, err := s.Merge(t.Context(), facts)
	if err != nil {
		t.Fatal(err)
	}
	return outcomes
}

// clock is a clock that a test sets.
type clock struct {
	mu sync.Mutex // guards at
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// publish is the load of a job and the minions that it goes to.
func publish(jid job.JID, keep job.Keep, ids ...job.Minion) []job.Fact {
	return []job.Fact{
		job.Load{
			JID: jid, Version: 1, Rank: job.RankPublish, Fun: "test.ping", Target: "*", TargetType: "glob",
			User: "root", Master: "m", Keep: keep, Payload: []byte("\x81\xa3fun\xa9test.ping"),
		},
		job.Minions{JID: jid, Version: 1, IDs: ids, Keep: keep},
	}
}

func returned(jid job.JID, id job.Minion) job.Return {
	code := int64(0)
	return job.Return{
		JID: jid, Minion: id, Version: 2, Fun: "test.ping", Master: "m", Keep: job.KeepUnset,
		RetCode: &code, Ret: []byte{0xc3}, Rest: []byte{0x80}, Times: []byte{0x80},
	}
}

func jidAt(at time.Time, i int) job.JID {
	return job.NewJID(at.Add(time.Duration(i) * time.Microsecond))
}

func minions(n int) []job.Minion {
	ids := make([]job.Minion, n)
	for i := range ids {
		ids[i] = job.Minion(fmt.Sprintf("minion-%05d.example.com", i))
	}
	return ids
}
