package embedded_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"saltern/job"
	"saltern/tiers"
	"saltern/tiers/embedded"
)

// Jobs come while older ones are removed, thousands at a time: of those that are due none is left,
// of the others every fact and every way to find them.
func TestExpireBesideWriters(t *testing.T) {
	const due, writers, each = 5000, 4, 150
	clk := &clock{at: start}
	s := open(t, embedded.Options{FS: vfs.NewMem(), Now: clk.now})
	var old []job.Fact
	for i := range due {
		old = append(old, publish(jidAt(start, i), 3600, "a")...)
	}
	merge(t, s, old...)
	clk.advance(2 * time.Hour)

	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				jid := jidAt(clk.now(), w*each+i)
				merge(t, s, publish(jid, 3600, "a", "b")...)
				merge(t, s, returned(jid, "a"))
			}
		})
	}
	gone := 0
	for range 20 {
		n, err := s.Expire(t.Context(), clk.now())
		if err != nil {
			t.Fatal(err)
		}
		gone += n
	}
	wg.Wait()
	if gone != due {
		t.Errorf("Expire removed %d jobs; want %d", gone, due)
	}
	for w := range writers {
		for i := range each {
			checkWhole(t, s, jidAt(clk.now(), w*each+i))
		}
	}
	if got := len(listAll(t, s, tiers.Filter{Minion: "b"})); got != writers*each {
		t.Errorf("%d jobs listed of minion b; want %d", got, writers*each)
	}
}

// Late returns of jobs that are due come in any order while such jobs are removed. Each makes its job
// anew: it is then there as a whole, or removed as a whole.
func TestLateReturnsBesideExpire(t *testing.T) {
	const jobs, writers = 5_000, 4
	clk := &clock{at: start.Add(2 * time.Hour)}
	s := open(t, embedded.Options{FS: vfs.NewMem(), Now: clk.now})
	var wg sync.WaitGroup
	var done atomic.Bool
	for w := range writers {
		wg.Go(func() {
			for i := w; i < jobs; i += writers {
				ret := returned(jidAt(start, i*7919%jobs), "a")
				ret.Keep = 3600
				merge(t, s, ret)
			}
		})
	}
	go func() { wg.Wait(); done.Store(true) }()
	for !done.Load() {
		if _, err := s.Expire(t.Context(), clk.now()); err != nil {
			t.Fatal(err)
		}
	}
	listed := make(map[job.JID]bool)
	for _, j := range listAll(t, s, tiers.Filter{}) {
		listed[j.JID] = true
	}
	for i := range jobs {
		jid := jidAt(start, i)
		page, err := s.Returns(t.Context(), jid, tiers.ReturnQuery{})
		there := err == nil
		if there != listed[jid] || there != (len(page.Returns) == 1) {
			t.Errorf("job %q: place %v, listed %v, %d returns; want all of it or nothing",
				jid, err, listed[jid], len(page.Returns))
		}
	}
}

func checkWhole(t *testing.T, s *embedded.Store, jid job.JID) {
	t.Helper()
	h, err := s.Head(t.Context(), jid)
	if err != nil || h.Load == nil || len(h.Minions) != 2 {
		t.Fatalf("Head(%q) = %+v, %v; want a job that is not due", jid, h, err)
	}
	page, err := s.Returns(t.Context(), jid, tiers.ReturnQuery{})
	if err != nil || len(page.Returns) != 1 {
		t.Fatalf("Returns(%q) = %+v, %v; want one", jid, page, err)
	}
}

func listAll(t *testing.T, s *embedded.Store, f tiers.Filter) []tiers.Listed {
	t.Helper()
	var all []tiers.Listed
	for {
		page, err := s.List(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, page.Jobs...)
		if f.Cursor = page.Next; f.Cursor == "" {
			return all
		}
	}
}

func TestJobIsKeptAsItsLoadSays(t *testing.T) {
	jid := job.NewJID(start)
	ret := returned(jid, "a")
	for _, tt := range []struct {
		name  string
		facts [][]job.Fact
		until time.Duration // 0 for ever
	}{
		{"load alone", [][]job.Fact{publish(jid, 3600, "a")}, time.Hour},
		{"unset is the default", [][]job.Fact{publish(jid, job.KeepUnset, "a")}, 24 * time.Hour},
		{"0 is for ever", [][]job.Fact{publish(jid, job.KeepForever, "a")}, 0},
		{"return before load", [][]job.Fact{{ret}, publish(jid, 7200, "a")}, 2 * time.Hour},
		{"return before load for ever", [][]job.Fact{{ret}, publish(jid, job.KeepForever, "a")}, 0},
		{"mark for ever, load for an hour", [][]job.Fact{
			{job.NoCache{JID: jid, Keep: job.KeepForever}}, publish(jid, 3600, "a"),
		}, time.Hour},
		{"a return does not prolong", [][]job.Fact{publish(jid, 3600, "a"), {ret}}, time.Hour},
	} {
		t.Run(tt.name, func(t *testing.T) {
			clk := &clock{at: start}
			s := open(t, embedded.Options{FS: vfs.NewMem(), Now: clk.now})
			for _, facts := range tt.facts {
				merge(t, s, facts...)
			}
			clk.advance(100 * 365 * 24 * time.Hour)
			if tt.until > 0 {
				clk.advance(start.Add(tt.until).Sub(clk.now()))
				if n, err := s.Expire(t.Context(), clk.now()); n != 0 || err != nil {
					t.Errorf("Expire at its time = %d, %v; want nothing removed", n, err)
				}
				clk.advance(time.Microsecond)
			}
			want := 1
			if tt.until == 0 {
				want = 0
			}
			if n, err := s.Expire(t.Context(), clk.now()); n != want || err != nil {
				t.Errorf("Expire after its time = %d, %v; want %d", n, err, want)
			}
			if left := listAll(t, s, tiers.Filter{}); len(left) != 1-want {
				t.Errorf("%d jobs left; want %d", len(left), 1-want)
			}
		})
	}
}

// A job that moves to another class takes everything with it.
func TestMovedJobIsWhole(t *testing.T) {
	s := open(t, embedded.Options{FS: vfs.NewMem()})
	jid := job.NewJID(start)
	failed := returned(jid, "b")
	failed.Failed = true
	merge(t, s, returned(jid, "a"), failed, job.EndTime{JID: jid, Text: "end", Keep: job.KeepUnset})
	merge(t, s, publish(jid, 0, "a", "c")...)

	h, err := s.Head(t.Context(), jid)
	if err != nil || h.Load == nil || h.EndTime == nil || len(h.Minions) != 2 {
		t.Errorf("Head = %+v, %v; want all of it", h, err)
	}
	page, err := s.Returns(t.Context(), jid, tiers.ReturnQuery{})
	if err != nil || len(page.Returns) != 2 {
		t.Errorf("Returns = %+v, %v; want both", page, err)
	}
	for _, f := range []tiers.Filter{
		{}, {Minion: "a"}, {Minion: "b"}, {Minion: "c"}, {Fun: "test.ping"}, {Target: "*"}, {User: "root"},
		{State: job.Failed},
	} {
		if got := listAll(t, s, f); len(got) != 1 || got[0].JID != jid || got[0].Missing != 1 {
			t.Errorf("List(%+v) = %+v; want the job, once, with one missing", f, got)
		}
	}
}

// Anybody may choose how long a job is kept, and every class costs each list something.
func TestManyClasses(t *testing.T) {
	clk := &clock{at: start}
	fs := vfs.NewMem()
	s := open(t, embedded.Options{FS: fs, Now: clk.now})
	for i := range 200 {
		merge(t, s, publish(jidAt(start, i), job.Keep(3600+i), "a")...)
	}
	jobs := listAll(t, s, tiers.Filter{Limit: 7})
	if len(jobs) != 200 {
		t.Fatalf("%d jobs listed; want 200", len(jobs))
	}
	for i, j := range jobs {
		if want := jidAt(start, 199-i); j.JID != want || j.Keep != job.Keep(3600+199-i) {
			t.Fatalf("job %d = %q kept %d s; want %q kept as asked", i, j.JID, j.Keep, want)
		}
	}
	// Some are kept longer than asked, none shorter, and none beyond the next power of two.
	for _, at := range []struct {
		after time.Duration
		least int
	}{{time.Hour, 200}, {4096 * time.Second, 100}, {8193 * time.Second, 0}} {
		clk.advance(start.Add(at.after).Sub(clk.now()))
		if _, err := s.Expire(t.Context(), clk.now()); err != nil {
			t.Fatal(err)
		}
		left := listAll(t, s, tiers.Filter{})
		if len(left) < at.least || at.least == 0 && len(left) > 0 {
			t.Errorf("%d jobs left after %v; want %d at least", len(left), at.after, at.least)
		}
	}
}

// The last function of a minion falls back to a job that is left.
func TestLastFunctionAfterExpire(t *testing.T) {
	clk := &clock{at: start}
	s := open(t, embedded.Options{FS: vfs.NewMem(), Now: clk.now})
	for i, keep := range []job.Keep{0, 3600, 7200} {
		jid := jidAt(start, i)
		ret := returned(jid, "a")
		ret.Fun = fmt.Sprintf("fun.%d", i)
		merge(t, s, append(publish(jid, keep, "a"), ret)...)
	}
	only := returned(jidAt(start, 9), "b")
	only.Keep = 3600
	merge(t, s, only)
	for _, want := range []string{"fun.2", "fun.2", "fun.0"} {
		ls, err := s.LastFunctions(t.Context(), want)
		if err != nil || len(ls) != 1 || ls[0].Minion != "a" {
			t.Errorf("after %v: LastFunctions(%q) = %+v, %v; want minion a", clk.now().Sub(start), want, ls, err)
		}
		clk.advance(time.Hour + time.Minute)
		if _, err := s.Expire(t.Context(), clk.now()); err != nil {
			t.Fatal(err)
		}
	}
	if all, err := s.LastFunctions(t.Context(), ""); err != nil || len(all) != 1 {
		t.Errorf("LastFunctions = %+v, %v; want minion a alone", all, err)
	}
}

// An event goes when its own time is too long ago; one of the future when it came too long ago.
func TestEventsExpire(t *testing.T) {
	clk := &clock{at: start}
	s := open(t, embedded.Options{FS: vfs.NewMem(), Now: clk.now, EventKeep: 2 * time.Hour})
	for i, at := range []time.Duration{-3 * time.Hour, -time.Hour, 1000 * time.Hour} {
		e := job.Event{Version: job.VersionAt(start), Master: "m", Tag: fmt.Sprint("tag/", i), Data: []byte{0x80}}
		binary.BigEndian.PutUint64(e.ID[:], uint64(start.Add(at).UnixMicro()))
		merge(t, s, e)
	}
	for _, step := range []struct {
		after time.Duration
		want  []string
	}{
		{0, []string{"tag/2", "tag/1"}},
		{time.Hour, []string{"tag/2", "tag/1"}},
		{time.Hour + time.Microsecond, []string{"tag/2"}},
		{2 * time.Hour, nil},
	} {
		clk.advance(start.Add(step.after).Sub(clk.now()))
		if _, err := s.Expire(t.Context(), clk.now()); err != nil {
			t.Fatal(err)
		}
		for _, tag := range []string{"", "tag/*"} {
			page, err := s.Events(t.Context(), tiers.EventQuery{Tag: tag})
			var got []string
			for _, e := range page.Events {
				got = append(got, e.Tag)
			}
			if err != nil || !slices.Equal(got, step.want) {
				t.Errorf("after %v: Events(%q) = %v, %v; want %v", step.after, tag, got, err, step.want)
			}
		}
	}
}

// When all has expired there is no row left but the format and the classes.
func TestExpireLeavesNothing(t *testing.T) {
	clk := &clock{at: start}
	fs := vfs.NewMem()
	s, err := embedded.Open(embedded.Options{
		Dir: "store", FS: fs, Now: clk.now, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		jid := jidAt(start, i)
		// The mark keeps it for ever until the load says an hour, so the job moves.
		merge(t, s, job.EndTime{JID: jid, Text: "t", Keep: job.KeepForever}, returned(jid, "b"))
		ret := returned(jid, "a")
		ret.Fun, ret.Failed = fmt.Sprint("fun.", i), i%2 == 0
		merge(t, s, append(publish(jid, 3600, "a", "c"), ret)...)
		l := publish(jid, 3600)[0].(job.Load)
		l.Version, l.Fun, l.Target, l.User = 5, "other.fun", "x", "other"
		merge(t, s, l)
		e := job.Event{Version: 1, Master: "m", Tag: "tag", Data: []byte{0x80}}
		binary.BigEndian.PutUint64(e.ID[:], uint64(start.UnixMicro()+int64(i)))
		merge(t, s, e)
	}
	clk.advance(30 * 24 * time.Hour)
	if n, err := s.Expire(t.Context(), clk.now()); n != 20 || err != nil {
		t.Errorf("Expire = %d, %v; want 20", n, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	db := openRaw(t, fs)
	it, err := db.NewIter(nil)
	if err != nil {
		t.Fatal(err)
	}
	for ok := it.First(); ok; ok = it.Next() {
		if table := it.Key()[0]; table != 'V' && table != 'C' {
			t.Errorf("row %q is left", it.Key())
		}
	}
	if err := errors.Join(it.Close(), db.Close()); err != nil {
		t.Fatal(err)
	}
}

// The tags of a bucket outlive its first events. A page that meets them goes on to the events behind.
func TestEventsBehindExpiredOnes(t *testing.T) {
	clk := &clock{at: start}
	s := open(t, embedded.Options{FS: vfs.NewMem(), Now: clk.now, EventKeep: time.Hour})
	const n = 40
	for i := range n {
		e := job.Event{Version: job.VersionAt(start), Master: "m", Tag: "tag/x", Data: []byte{byte(i)}}
		binary.BigEndian.PutUint64(e.ID[:], uint64(start.Add(time.Duration(i)*time.Second).UnixMicro()))
		merge(t, s, e)
	}
	clk.advance(time.Hour + (n-5)*time.Second)
	if _, err := s.Expire(t.Context(), clk.now()); err != nil {
		t.Fatal(err)
	}
	for _, oldest := range []bool{true, false} {
		q := tiers.EventQuery{Tag: "tag/*", Limit: 2, Oldest: oldest}
		found := 0
		for {
			page, err := s.Events(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			found += len(page.Events)
			if q.Cursor = page.Next; q.Cursor == "" {
				break
			}
		}
		if found != 5 {
			t.Errorf("oldest first %v: %d events; want the 5 that are left", oldest, found)
		}
	}
}
