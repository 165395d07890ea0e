package embedded_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"saltern/job"
	"saltern/tiers"
	"saltern/tiers/embedded"
)

// A publish to 60,000 minions is one merge, and a return of it touches no other minion's rows.
func TestJobOf60000Minions(t *testing.T) {
	const n = 60_000
	fs := vfs.NewMem()
	s := open(t, embedded.Options{FS: fs})
	jid := job.NewJID(time.Now())
	ids := minions(n)
	merge(t, s, publish(jid, job.KeepForever, ids...)...)
	h, err := s.Head(t.Context(), jid)
	if err != nil || !slices.Equal(h.Minions, ids) {
		t.Fatalf("Head has %d minions, %v; want %d", len(h.Minions), err, n)
	}
	before := written(s)
	const returns = 1000
	for _, id := range ids[:returns] {
		merge(t, s, returned(jid, id))
	}
	if per := (written(s) - before) / returns; per > 2000 {
		t.Errorf("a return writes %d bytes to the log; want it not to depend on the minions", per)
	}
	jobs := listAll(t, s, tiers.Filter{})
	if len(jobs) != 1 || jobs[0].Expected != n || jobs[0].Missing != n-returns || jobs[0].Returned != returns {
		t.Errorf("List = %+v; want the job with %d missing", jobs, n-returns)
	}
}

func written(s *embedded.Store) uint64 { return s.Stats().LogBytes }

// Texts are cut in summaries and index keys, but not in answers or in what a filter sees.
func TestLongTexts(t *testing.T) {
	s := open(t, embedded.Options{FS: vfs.NewMem()})
	long := strings.Repeat("minion,", 10_000)
	for i, target := range []string{long + "a", long + "b"} {
		l := publish(jidAt(start, i), job.KeepForever, "a")[0].(job.Load)
		l.Target, l.User = target, long
		merge(t, s, l)
	}
	for _, f := range []tiers.Filter{
		{Target: long + "a"}, {Target: "*,a"}, {Target: long + "a", User: long, Fun: "test.ping"},
	} {
		got := listAll(t, s, f)
		if len(got) != 1 || got[0].Target != long+"a" || got[0].User != long {
			t.Errorf("List by %.20q... = %d jobs; want the one with its whole target", f.Target, len(got))
		}
	}
	tag := strings.Repeat("t\x00", 300)
	e := job.Event{Tag: tag + "1", Master: "m", Data: []byte{0x80}}
	binary.BigEndian.PutUint64(e.ID[:], uint64(time.Now().UnixMicro()))
	other := e
	other.ID[15], other.Tag = 1, tag+"2"
	merge(t, s, e, other)
	for _, pattern := range []string{e.Tag, "t*1"} {
		page, err := s.Events(t.Context(), tiers.EventQuery{Tag: pattern})
		if err != nil || len(page.Events) != 1 || page.Events[0].Tag != e.Tag {
			t.Errorf("Events by %.20q = %d events, %v; want the one", pattern, len(page.Events), err)
		}
	}
}

// One call looks at so many jobs and no more: a search that finds little gives short pages.
func TestListBoundsItsWork(t *testing.T) {
	const n = 21_000
	s := open(t, embedded.Options{FS: vfs.NewMem()})
	facts := make([]job.Fact, n)
	for i := range facts {
		facts[i] = publish(jidAt(start, i), job.KeepForever)[0]
	}
	rare := facts[0].(job.Load)
	rare.Fun = "rare.fun"
	facts[0] = rare
	merge(t, s, facts...)
	f, pages, found := tiers.Filter{Fun: "*rare*"}, 0, 0
	for {
		page, err := s.List(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		pages++
		found += len(page.Jobs)
		if f.Cursor = page.Next; f.Cursor == "" {
			break
		}
	}
	if found != 1 || pages < 2 {
		t.Errorf("found %d in %d pages; want the one, in several", found, pages)
	}
	page, err := s.List(t.Context(), tiers.Filter{Fun: "rare.fun"})
	if err != nil || len(page.Jobs) != 1 || page.Next != "" {
		t.Errorf("by the index: %d jobs, next %q, %v; want the one at once", len(page.Jobs), page.Next, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.List(ctx, tiers.Filter{Fun: "*rare*"}); !errors.Is(err, context.Canceled) {
		t.Errorf("List with an ended context = %v; want Canceled", err)
	}
}

// Bounds the wrong way round select nothing.
func TestListOfNoTime(t *testing.T) {
	s := open(t, embedded.Options{FS: vfs.NewMem()})
	merge(t, s, publish(jidAt(start, 0), job.KeepForever, "a")...)
	for _, f := range []tiers.Filter{{}, {Fun: "test.ping"}, {Minion: "a"}} {
		f.From, f.To = start.Add(48*time.Hour), start.Add(-48*time.Hour)
		if got := listAll(t, s, f); len(got) != 0 {
			t.Errorf("List(%+v) = %+v; want none", f, got)
		}
	}
}

func TestInvalidFactsAreRefused(t *testing.T) {
	s := open(t, embedded.Options{FS: vfs.NewMem()})
	for name, f := range map[string]job.Fact{
		"no jid":       job.EndTime{},
		"long jid":     job.EndTime{JID: job.JID(make([]byte, job.MaxJIDBytes+1))},
		"no minion":    job.Return{JID: "j"},
		"long minion":  job.Return{JID: "j", Minion: job.Minion(make([]byte, job.MaxMinionBytes+1))},
		"empty in ids": job.Minions{JID: "j", IDs: []job.Minion{"a", ""}},
	} {
		_, err := s.Merge(t.Context(), []job.Fact{job.EndTime{JID: "good"}, f})
		if !errors.Is(err, tiers.ErrInvalid) {
			t.Errorf("%s: Merge = %v; want ErrInvalid", name, err)
		}
	}
	if _, err := s.Head(t.Context(), "good"); !errors.Is(err, tiers.ErrNotFound) {
		t.Errorf("Head of a job of a refused call = %v; want ErrNotFound", err)
	}
}

// A value that fails its check is missing, counted, logged without its payload, and never served.
func TestCorruptValues(t *testing.T) {
	fs := vfs.NewMem()
	jid := job.NewJID(time.Now())
	secret := returned(jid, "a")
	secret.Ret = []byte("\xa6secret")
	fill := func(s *embedded.Store) { merge(t, s, append(publish(jid, job.KeepForever, "a", "b"), secret)...) }
	s, err := embedded.Open(embedded.Options{Dir: "store", FS: fs})
	if err != nil {
		t.Fatal(err)
	}
	fill(s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	damage(t, fs, "DS") // the job's load and return, and its summary

	var log bytes.Buffer
	s = open(t, embedded.Options{FS: fs, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	h, err := s.Head(t.Context(), jid)
	if err != nil || h.Load != nil || len(h.Minions) != 2 {
		t.Errorf("Head = %+v, %v; want it without the load", h, err)
	}
	page, err := s.Returns(t.Context(), jid, tiers.ReturnQuery{})
	if err != nil || len(page.Returns) != 0 {
		t.Errorf("Returns = %+v, %v; want none", page, err)
	}
	if n := s.Stats().Corrupt; n != 2 {
		t.Errorf("%d corrupt values counted; want 2", n)
	}
	if !strings.Contains(log.String(), string(jid)) || strings.Contains(log.String(), "secret") {
		t.Errorf("log = %s; want the jid and no payload", log.String())
	}
	// Writing the facts again repairs the job.
	fill(s)
	jobs := listAll(t, s, tiers.Filter{Fun: "test.ping"})
	if len(jobs) != 1 || jobs[0].Returned != 1 || jobs[0].Missing != 1 {
		t.Errorf("List after the repair = %+v; want the job with one return", jobs)
	}
	if page, err = s.Returns(t.Context(), jid, tiers.ReturnQuery{}); err != nil || len(page.Returns) != 1 {
		t.Errorf("Returns after the repair = %+v, %v; want one", page, err)
	}
}

// damage turns a bit in every value under the tables named.
func damage(t *testing.T, fs vfs.FS, tables string) {
	t.Helper()
	db := openRaw(t, fs)
	b := db.NewBatch()
	for _, table := range []byte(tables) {
		it, err := db.NewIter(&pebble.IterOptions{LowerBound: []byte{table}, UpperBound: []byte{table + 1}})
		if err != nil {
			t.Fatal(err)
		}
		for ok := it.First(); ok; ok = it.Next() {
			if value := bytes.Clone(it.Value()); len(value) > 0 {
				value[len(value)-1] ^= 1
				err = errors.Join(err, b.Set(bytes.Clone(it.Key()), value, nil))
			}
		}
		if err := errors.Join(err, it.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(b.Commit(pebble.Sync), db.Close()); err != nil {
		t.Fatal(err)
	}
}
