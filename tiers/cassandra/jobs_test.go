package cassandra_test

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"saltern/job"
	"saltern/tiers"
	"saltern/tiers/cassandra"
)

// listedAs gives the one job with a jid that is on the first pages of the list.
func listedAs(t *testing.T, s *cassandra.Store, f tiers.Filter, jid job.JID) (found []job.Summary) {
	t.Helper()
	for range 20 {
		page, err := s.List(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		for _, j := range page.Jobs {
			if j.JID == jid {
				found = append(found, j.Summary)
			}
		}
		if f.Cursor = page.Next; page.Next == "" {
			break
		}
	}
	return found
}

// TestSummaryFollows: the summary of a job at rest is kept, and gives way as soon as the job changes, whoever changes it.
func TestSummaryFollows(t *testing.T) {
	o := options(t)
	var ahead atomic.Int64
	o.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	lists, writes, other := open(t, o), open(t, o), open(t, o)
	jid := newJID()
	f := tiers.Filter{From: time.Now().Add(-time.Hour), Minion: minion(7001)}
	want := func(when string, returned, missing int) {
		t.Helper()
		got := listedAs(t, lists, f, jid)
		if len(got) != 1 || got[0].Returned != returned || got[0].Missing != missing {
			t.Errorf("%s: %+v; want %d returned and %d missing", when, got, returned, missing)
		}
	}
	merge(t, writes, publish(jid, 86400), minionsOf(jid, minion(7001), minion(7002), minion(7003)))
	want("published", 0, 3)
	merge(t, writes, returnOf(jid, minion(7001), nil))
	want("one return", 1, 2)

	// At rest: counted once more, and from then on read from the list.
	ahead.Store(int64(2 * time.Minute))
	want("at rest", 1, 2)
	await(t, 10*time.Second, func() error { return summaryStored(t, o, jid) })
	want("kept", 1, 2)

	// A return that comes late, through a process that has not written to the job for a while.
	merge(t, writes, returnOf(jid, minion(7002), nil))
	want("late return", 2, 1)
	// And one through another process, which thinks that the job is marked as changed.
	merge(t, other, returnOf(jid, minion(7003), nil))
	want("return through another", 3, 0)
	if got := listedAs(t, lists, f, jid); got[0].State(o.Now()) != job.Complete {
		t.Errorf("state %v; want complete", got[0].State(o.Now()))
	}
}

type notStored struct{}

func (notStored) Error() string { return "no summary is stored" }

func summaryStored(t *testing.T, o cassandra.Options, jid job.JID) error {
	t.Helper()
	at, _ := jid.Time()
	for shard := range 8 {
		var summary []byte
		err := bare(t, o).Query("SELECT summary FROM jobs_by_day WHERE day = ? AND shard = ? AND at = ? AND jid = ?",
			at.Truncate(24*time.Hour), shard, at.UnixMicro(), string(jid)).Scan(&summary)
		if err == nil && summary != nil {
			return nil
		}
	}
	return notStored{}
}

// TestFreeJids: a jid without a time of its own has that of its first fact, for every process and in every list, once.
func TestFreeJids(t *testing.T) {
	o := options(t)
	a := open(t, o)
	jid := job.JID("free-" + string(newJID()))
	load := publish(jid, 86400)
	merge(t, a, load, minionsOf(jid, "a"))
	first := listedAs(t, a, tiers.Filter{Minion: "a"}, jid)
	if len(first) != 1 || first[0].Time.Sub(load.Version.Time()).Abs() > time.Millisecond {
		t.Fatalf("listed as %+v; want once, at %v", first, load.Version.Time())
	}
	b := open(t, o) // another process, later
	merge(t, b, returnOf(jid, "a", []byte{0xc3}))
	merge(t, b, returnOf(jid, "b", []byte{0xc3}))
	for name, f := range map[string]tiers.Filter{"by day": {}, "by minion": {Minion: "a"}, "by the other minion": {Minion: "b"}} {
		got := listedAs(t, b, f, jid)
		if len(got) != 1 || !got[0].Time.Equal(first[0].Time) || got[0].Returned != 2 {
			t.Errorf("%s: %+v; want it once, at %v, with 2 returns", name, got, first[0].Time)
		}
	}
}

// TestNoCacheThroughAnother: a process that does not know of the mark stores a return; nobody reads it, and what was
// there before the mark stays.
func TestNoCacheThroughAnother(t *testing.T) {
	o := options(t)
	a, b := open(t, o), open(t, o)
	jid := newJID()
	merge(t, a, publish(jid, 86400), returnOf(jid, "before", []byte{0xc3}))
	merge(t, a, job.NoCache{JID: jid, Version: clock.Next(), Keep: 86400})
	merge(t, b, returnOf(jid, "after", []byte{0xc3}))
	if got := merge(t, a, returnOf(jid, "known", []byte{0xc3})); got[0] != job.Dropped {
		t.Errorf("outcome %v; want dropped", got)
	}
	for _, q := range []tiers.ReturnQuery{{}, {NoPayload: true}, {Only: []job.Minion{"before", "after"}}, {After: "a"}} {
		all, _ := allReturns(t, b, jid, q)
		var ids []job.Minion
		for _, r := range all {
			ids = append(ids, r.Minion)
		}
		if want := []job.Minion{"before"}; !slices.Equal(ids, want) {
			t.Errorf("%+v gives returns of %q; want %q", q, ids, want)
		}
	}
}

// TestCorruptIsMissing: a value that cannot be right is counted and never served; what is beside it is.
func TestCorruptIsMissing(t *testing.T) {
	o := options(t)
	s := open(t, o)
	session := bare(t, o)
	jid := newJID()
	bad := returnOf(jid, "b", noise(100))
	merge(t, s, publish(jid, 86400), minionsOf(jid, "a", "b"), returnOf(jid, "a", noise(100)), bad, returnOf(jid, "c", noise(2<<20)))
	run := func(cql string, args ...any) {
		t.Helper()
		if err := session.Query(cql, args...).Exec(); err != nil {
			t.Fatal(err)
		}
	}
	var version, digest int64
	if err := session.Query("SELECT version, digest FROM returns WHERE jid = ? AND bucket = 0 AND minion = ?", string(jid), "b").
		Scan(&version, &digest); err != nil {
		t.Fatal(err)
	}
	run("UPDATE returns SET body = ? WHERE jid = ? AND bucket = 0 AND minion = ? AND version = ? AND digest = ?",
		[]byte("Sn\x01\x00 not what it was"), string(jid), "b", version, digest)
	run("UPDATE heads SET data = ? WHERE jid = ? AND kind = 2 AND name = ?", []byte("nonsense"), string(jid), "another list")
	run("TRUNCATE chunks")
	all, _ := allReturns(t, s, jid, tiers.ReturnQuery{})
	if len(all) != 1 || all[0].Minion != "a" {
		t.Errorf("%d returns; want that of a", len(all))
	}
	if h, err := s.Head(t.Context(), jid); err != nil || h.Load == nil || len(h.Minions) != 2 {
		t.Errorf("Head = %+v, %v", h, err)
	}
	if n := s.Corrupt(); n != 3 {
		t.Errorf("%d corrupt values were counted; want 3", n)
	}
}

// TestTiedReturns: two nodes that gave out one version for two returns of a minion: every reader takes the same one.
func TestTiedReturns(t *testing.T) {
	s := open(t, options(t))
	jid := newJID()
	x, y := returnOf(jid, "a", []byte{0xa1, 'x'}), returnOf(jid, "a", []byte{0xa1, 'y'})
	y.Version = x.Version
	want, _ := job.MergeReturn(x, y)
	merge(t, s, y)
	merge(t, s, x)
	all, _ := allReturns(t, s, jid, tiers.ReturnQuery{})
	if len(all) != 1 || string(all[0].Ret) != string(want.Ret) {
		t.Errorf("%+v; want the one of %q", all, want.Ret)
	}
}
