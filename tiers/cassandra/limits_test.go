package cassandra_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"saltern/job"
	"saltern/tiers"
	"saltern/tiers/cassandra"
)

// TestLargeValues is S76: Cassandra takes no mutation above 16 MiB, and a client sees that as a timeout.
func TestLargeValues(t *testing.T) {
	s := open(t, options(t))
	for _, mib := range []int{15, 16, 17, 56} {
		t.Run(fmt.Sprintf("%dMiB", mib), func(t *testing.T) {
			jid := newJID()
			payload := noise(mib << 20)
			load := publish(jid, 86400)
			load.Payload = payload
			ret := returnOf(jid, "a", payload)
			merge(t, s, load, minionsOf(jid, "a"), ret)
			h, err := s.Head(t.Context(), jid)
			if err != nil || h.Load == nil || !bytes.Equal(h.Load.Payload, payload) {
				t.Fatalf("the load is not what it was: %v", err)
			}
			all, _ := allReturns(t, s, jid, tiers.ReturnQuery{MaxBytes: 1 << 20})
			if len(all) != 1 || !bytes.Equal(all[0].Ret, payload) {
				t.Fatal("the return is not what it was")
			}
			if heads, _ := allReturns(t, s, jid, tiers.ReturnQuery{NoPayload: true}); len(heads) != 1 || heads[0].Ret != nil {
				t.Error("headers alone are not that")
			}
			page, err := s.List(t.Context(), tiers.Filter{Minion: "a", Limit: 1})
			if err != nil || len(page.Jobs) != 1 || page.Jobs[0].State(time.Now()) != job.Complete {
				t.Errorf("List = %+v, %v; want the job, complete", page, err)
			}
		})
	}
	t.Run("event and register", func(t *testing.T) {
		data := noise(3 << 20)
		e := job.Event{Version: clock.Next(), Master: "m1", Tag: "t", Data: data}
		copy(e.ID[:], bigEndian(time.Now().UnixMicro()))
		merge(t, s, e)
		page, err := s.Events(t.Context(), tiers.EventQuery{})
		if err != nil || len(page.Events) != 1 || !bytes.Equal(page.Events[0].Data, data) {
			t.Errorf("%d events, %v; want the one", len(page.Events), err)
		}
		if err := s.SaveRegister(t.Context(), "m1", data); err != nil {
			t.Fatal(err)
		}
		if got, err := s.LoadRegister(t.Context(), "m1"); err != nil || !bytes.Equal(got, data) {
			t.Errorf("the register is not what it was: %v", err)
		}
	})
	t.Run("too large for anybody", func(t *testing.T) {
		_, err := s.Merge(t.Context(), []job.Fact{returnOf(newJID(), "a", make([]byte, job.MaxBody+1))})
		if !errors.Is(err, tiers.ErrTooLarge) {
			t.Errorf("Merge = %v; want ErrTooLarge", err)
		}
	})
}

func bigEndian(n int64) []byte {
	b := make([]byte, 8)
	for i := range b {
		b[i] = byte(n >> (56 - 8*i))
	}
	return b
}

// TestTTL is the other half of S76: what Cassandra cannot keep that long is kept for its most, with one warning.
func TestTTL(t *testing.T) {
	var log bytes.Buffer
	o := options(t)
	o.Logger = slog.New(slog.NewTextHandler(&lockedWriter{w: &log}, nil))
	s := open(t, o)
	session := bare(t, o)
	// The year 2038 is nearer than 20 years.
	most := min(630720000, int(time.Until(time.Date(2038, 1, 19, 0, 0, 0, 0, time.UTC)).Seconds()))
	low := most - 100_000
	for _, c := range []struct {
		keep      job.Keep
		low, high int
	}{
		{job.KeepForever, 0, 0}, {job.KeepUnset, 86300, 86400}, {1, 3500, 3600}, {7200, 7100, 7200},
		{630720000, low, most}, {630720001, low, most}, {1 << 31, low, most}, {1e10, low, most}, {math.MaxInt64, low, most},
	} {
		jid := newJID()
		load, ret, list := publish(jid, c.keep), returnOf(jid, "a", []byte{0xc3}), minionsOf(jid, "a", "b")
		ret.Keep, list.Keep = job.KeepUnset, job.KeepUnset
		// The load is the last fact of the call, and says how long all live.
		merge(t, s, ret, list, load)
		for _, query := range []string{
			"SELECT ttl(data) FROM heads WHERE jid = ?",
			"SELECT ttl(head) FROM returns WHERE jid = ? AND bucket = 0",
		} {
			iter := session.Query(query, string(jid)).Iter()
			var ttl *int
			rows := 0
			for ; iter.Scan(&ttl); rows++ {
				got := 0
				if ttl != nil {
					got = *ttl
				}
				if got < c.low || got > c.high {
					t.Errorf("keep %d: %s gives %d; want %d to %d", c.keep, query, got, c.low, c.high)
				}
			}
			if err := iter.Close(); err != nil || rows == 0 {
				t.Errorf("%s: %d rows, %v", query, rows, err)
			}
		}
	}
	if n := strings.Count(log.String(), "longer than Cassandra can"); n != 1 {
		t.Errorf("%d warnings; want 1:\n%s", n, log.String())
	}
}

// lockedWriter lets the store's goroutines write to a buffer.
type lockedWriter struct {
	mu sync.Mutex // guards w
	w  *bytes.Buffer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// TestJobOfManyMinions: a job is written by many callers who do not know how large it becomes, no partition of it grows
// beyond its bound, and it is read in bounded memory, in order, and from any place on.
func TestJobOfManyMinions(t *testing.T) {
	n := 3000
	if os.Getenv("SALTERN_LONG") == "1" {
		n = 60_000
	}
	o := options(t)
	s := open(t, o)
	jid := newJID()
	ids := make([]job.Minion, n)
	for i := range ids {
		ids[i] = minion(i)
	}
	started := time.Now()
	merge(t, s, publish(jid, 86400), minionsOf(jid, ids...))
	t.Logf("publish of %d minions: %v", n, time.Since(started).Round(time.Millisecond))
	started = time.Now()
	writeReturns(t, s, jid, ids)
	took := time.Since(started)
	t.Logf("%d returns of 64 callers: %v, %.0f a second", n, took.Round(time.Millisecond), float64(n)/took.Seconds())

	checkPartitions(t, o, jid, n)
	before := heapInUse()
	started = time.Now()
	all, pages := allReturns(t, s, jid, tiers.ReturnQuery{MaxBytes: 1 << 20})
	t.Logf("read in %d pages: %v, heap grew by %d MiB", pages, time.Since(started).Round(time.Millisecond), (heapInUse()-before)>>20)
	if len(all) != n || !slices.IsSortedFunc(all, func(a, b job.Return) int { return strings.Compare(string(a.Minion), string(b.Minion)) }) {
		t.Fatalf("%d returns; want %d in order", len(all), n)
	}
	for _, q := range []tiers.ReturnQuery{
		{After: ids[n/2]}, {Only: []job.Minion{ids[0], ids[n-1], ids[n/2], "nobody"}}, {NoPayload: true, After: ids[n-10]},
	} {
		want := 0
		for _, id := range ids {
			if id > q.After && (q.Only == nil || slices.Contains(q.Only, id)) {
				want++
			}
		}
		if got, _ := allReturns(t, s, jid, q); len(got) != want {
			t.Errorf("%d returns of after %q, only %d; want %d", len(got), q.After, len(q.Only), want)
		}
	}
	started = time.Now()
	page, err := s.List(t.Context(), tiers.Filter{Limit: 1})
	if err != nil || len(page.Jobs) != 1 || page.Jobs[0].Missing != 0 || page.Jobs[0].Returned != n {
		t.Fatalf("List = %+v, %v", page, err)
	}
	t.Logf("listed, counted anew: %v", time.Since(started).Round(time.Millisecond))
}

func writeReturns(t *testing.T, s *cassandra.Store, jid job.JID, ids []job.Minion) {
	t.Helper()
	work := make(chan job.Minion)
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for id := range work {
				if _, err := s.Merge(context.Background(), []job.Fact{returnOf(jid, id, noise(700))}); err != nil {
					t.Errorf("Merge of %s: %v", id, err)
				}
			}
		})
	}
	for _, id := range ids {
		work <- id
	}
	close(work)
	wg.Wait()
}

// checkPartitions counts the rows of each bucket: 2,000 returns in each, and marks in the first.
func checkPartitions(t *testing.T, o cassandra.Options, jid job.JID, n int) {
	t.Helper()
	session := bare(t, o)
	sum := 0
	for bucket := range n/2000 + 2 {
		rows := 0
		iter := session.Query("SELECT minion FROM returns WHERE jid = ? AND bucket = ? AND minion > ?", string(jid), bucket, "").Iter()
		for id := ""; iter.Scan(&id); rows++ {
		}
		if err := iter.Close(); err != nil {
			t.Fatal(err)
		}
		if rows > 2000 {
			t.Errorf("bucket %d has %d rows; want 2000 at most", bucket, rows)
		}
		sum += rows
	}
	if sum != n {
		t.Errorf("%d rows in all buckets; want %d", sum, n)
	}
}

func heapInUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse)
}

// TestDriverReusesBytes pins the trap for which every row is scanned into a variable of its own.
func TestDriverReusesBytes(t *testing.T) {
	o := options(t)
	s := open(t, o)
	jid := newJID()
	merge(t, s, publish(jid, 86400), minionsOf(jid, "a"))
	iter := bare(t, o).Query("SELECT data FROM heads WHERE jid = ?", string(jid)).Iter()
	var data []byte
	var first []byte
	for iter.Scan(&data) {
		if first == nil && len(data) > 0 {
			first = data
			continue
		}
		if len(data) > 0 && &first[0] == &data[0] {
			_ = iter.Close()
			return
		}
	}
	if err := iter.Close(); err != nil {
		t.Fatal(err)
	}
	t.Error("the driver gives new bytes for each row now: rows need no variables of their own")
}

// TestTimestampsFollowVersions is what USING TIMESTAMP must not do: a value that was written earlier and has a later version, or
// the other way round, in each table that keeps the last one.
func TestTimestampsFollowVersions(t *testing.T) {
	s := open(t, options(t))
	jid := newJID()
	older, newer := publish(jid, 86400), publish(jid, 86400)
	newer.Target = "newer"
	endOlder := job.EndTime{JID: jid, Version: older.Version, Text: "older", Keep: 86400}
	endNewer := job.EndTime{JID: jid, Version: newer.Version, Text: "newer", Keep: 86400}
	merge(t, s, newer, endNewer)
	merge(t, s, older, endOlder)
	h, err := s.Head(t.Context(), jid)
	if err != nil {
		t.Fatal(err)
	}
	if h.Load.Target != "newer" || h.EndTime.Text != "newer" {
		t.Errorf("target %q and end %q; want the newer ones", h.Load.Target, h.EndTime.Text)
	}
}

// TestStatementsHaveRoutingKeys pins that the driver knows the partition of every statement: without, a node without the
// data is asked to ask another one.
func TestStatementsHaveRoutingKeys(t *testing.T) {
	o := options(t)
	open(t, o)
	session := bare(t, o)
	source, err := os.ReadFile("statements.go")
	if err != nil {
		t.Fatal(err)
	}
	statements := regexp.MustCompile("`[^`]+`").FindAllString(string(source), -1)
	if len(statements) < 30 {
		t.Fatalf("%d statements in statements.go", len(statements))
	}
	for _, quoted := range statements {
		cql := strings.Trim(quoted, "`")
		meta, err := session.StatementMetadata(t.Context(), cql, o.Keyspace)
		if err != nil {
			t.Errorf("%s: %v", cql, err)
			continue
		}
		if len(meta.PKBindColumnIndexes) == 0 {
			t.Errorf("%s: the driver does not know its partition", cql)
		}
	}
}
