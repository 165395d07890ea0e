package embedded_test

import (
	"context"
	"encoding/binary"
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"saltern/job"
	"saltern/tiers"
	"saltern/tiers/embedded"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// machine drives a store and the model with the same calls.
type machine struct {
	fs    vfs.FS
	clock time.Time
	store *embedded.Store
	model *model
}

// Jids: in Salt's form, of several days; with a suffix; odd; and one of the future. Two share their
// time, and one of them is the beginning of another.
var (
	poolJIDs = []job.JID{
		"20260301115900000000", "20260301115900000000_77", "20260228120000000001",
		"20260227000000000000", "20260301000000000000", "20301231000000000000",
		"odd", "odd\x00", "odd\x00\x01", "../日本/\xed\xb3\xbf",
	}
	poolMinions = []job.Minion{"a", "a\x00", "b.example.com", "c/d:e", "日本"}
	poolFuns    = []string{"test.ping", "state.apply", "test.version", "cmd.run,test.ping"}
	poolTargets = []string{"", "*", "a", "a,b,c"}
	poolUsers   = []string{"root", "sudo_ann"}
	poolMasters = []string{"m1", "m2"}
	poolKeeps   = []job.Keep{job.KeepUnset, job.KeepUnset, job.KeepForever, 3600, 100_000}
	poolTags    = []string{"salt/auth", "salt/job/1/new", "salt/job/1/ret/a", "salt/job/2/new", "x\x00y", ""}
)

func TestStoreBehavesLikeTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &machine{fs: vfs.NewMem(), clock: start}
		m.model = newModel(m.now, 24*time.Hour, 2*time.Hour)
		m.open(t)
		t.Repeat(map[string]func(*rapid.T){
			"merge":  m.merge,
			"list":   m.list,
			"events": m.events,
			"lasts":  m.lasts,
			"expire": m.expire,
			"reopen": func(t *rapid.T) { m.close(t); m.open(t); m.checkJobs(t) },
			"wait": func(t *rapid.T) {
				hours := rapid.SampledFrom([]time.Duration{time.Second, 20 * time.Minute, 5 * time.Hour})
				m.clock = m.clock.Add(hours.Draw(t, "wait"))
			},
			"read": m.checkJobs,
		})
		m.checkJobs(t)
		m.close(t)
	})
}

func (m *machine) now() time.Time { return m.clock }

func (m *machine) open(t *rapid.T) {
	s, err := embedded.Open(embedded.Options{
		Dir: "store", FS: m.fs, Now: m.now, DefaultKeep: 24 * time.Hour, EventKeep: 2 * time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	m.store = s
}

func (m *machine) close(t *rapid.T) {
	if err := m.store.Close(); err != nil {
		t.Fatal(err)
	}
}

func (m *machine) merge(t *rapid.T) {
	// Facts of a call are often of one job.
	jid := rapid.SampledFrom(poolJIDs).Draw(t, "jid")
	facts := make([]job.Fact, rapid.IntRange(1, 4).Draw(t, "facts"))
	for i := range facts {
		if rapid.IntRange(0, 4).Draw(t, "other job") == 0 {
			jid = rapid.SampledFrom(poolJIDs).Draw(t, "jid")
		}
		facts[i] = drawFact(t, jid, m.clock)
	}
	want := m.model.merge(facts)
	got, err := m.store.Merge(context.Background(), facts)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("Merge(%+v) = %v; want %v", facts, got, want)
	}
}

func drawFact(t *rapid.T, jid job.JID, now time.Time) job.Fact {
	version := job.Version(rapid.IntRange(1, 4).Draw(t, "version"))
	keep := rapid.SampledFrom(poolKeeps).Draw(t, "keep")
	fun := rapid.SampledFrom(poolFuns).Draw(t, "fun")
	master := rapid.SampledFrom(poolMasters).Draw(t, "master")
	payload := rapid.SampledFrom([][]byte{{0x80}, {0x81, 1, 2}}).Draw(t, "payload")
	switch rapid.IntRange(0, 9).Draw(t, "kind") {
	case 0, 1:
		return job.Load{
			JID: jid, Version: version, Rank: job.Rank(rapid.IntRange(1, 3).Draw(t, "rank")), Fun: fun,
			Target: rapid.SampledFrom(poolTargets).Draw(t, "target"), TargetType: "glob",
			User: rapid.SampledFrom(poolUsers).Draw(t, "user"), Master: master, Keep: keep, Payload: payload,
		}
	case 2, 3:
		ids := rapid.SliceOfN(rapid.SampledFrom(poolMinions), 0, 3).Draw(t, "minions")
		return job.Minions{JID: jid, Version: version, IDs: ids, Keep: keep}
	case 4:
		return job.EndTime{JID: jid, Version: version, Text: fun, Keep: keep}
	case 5:
		return job.NoCache{JID: jid, Version: version, Keep: keep}
	case 6:
		e := job.Event{
			Version: version, Master: master, Tag: rapid.SampledFrom(poolTags).Draw(t, "tag"), Data: payload,
		}
		ago := time.Duration(rapid.IntRange(-1, 40).Draw(t, "minutes ago")) * time.Minute
		binary.BigEndian.PutUint64(e.ID[:], uint64(now.Add(-ago).UnixMicro()))
		e.ID[15] = byte(rapid.IntRange(0, 2).Draw(t, "id"))
		return e
	default:
		return job.Return{
			JID: jid, Minion: rapid.SampledFrom(poolMinions).Draw(t, "minion"), Version: version, Fun: fun,
			Master: master, Keep: keep, Failed: rapid.IntRange(0, 3).Draw(t, "failed") == 0, Ret: payload,
			Rest: []byte{0x80}, Times: []byte{0x81, 1, byte(version)},
		}
	}
}

func (m *machine) list(t *rapid.T) {
	f := drawFilter(t, m.clock)
	wanted, hidden := m.model.list(f)
	var got []job.Summary
	for pages := 0; ; pages++ {
		page, err := m.store.List(context.Background(), f)
		if err != nil {
			t.Fatal(err)
		}
		if len(page.Jobs) > f.Limit || pages > 100 {
			t.Fatalf("List(%+v) = page %d of %d jobs", f, pages, len(page.Jobs))
		}
		for _, j := range page.Jobs {
			got = append(got, j.Summary)
			if h := m.model.jobs[j.JID].head; f.Loads && !reflect.DeepEqual(normal(*j.Head), normal(h)) {
				t.Fatalf("List(%+v): head %+v; want %+v", f, *j.Head, h)
			}
		}
		hidden -= page.Hidden
		if f.Cursor = page.Next; f.Cursor == "" {
			break
		}
	}
	if !slices.Equal(got, wanted) || hidden != 0 {
		t.Fatalf("List(%+v) = %+v, %d hidden too few; want %+v", f, got, hidden, wanted)
	}
}

func drawFilter(t *rapid.T, now time.Time) tiers.Filter {
	f := tiers.Filter{Limit: rapid.IntRange(1, 4).Draw(t, "limit"), Loads: rapid.Bool().Draw(t, "loads")}
	// Each field is mostly not used.
	use := func(name string) bool { return rapid.IntRange(0, 3).Draw(t, name) == 0 }
	if use("by fun") {
		f.Fun = rapid.SampledFrom(append(poolFuns, "test.*", "none")).Draw(t, "fun")
	}
	if use("by target") {
		f.Target = rapid.SampledFrom([]string{"a", "a,*", "*", "[*]"}).Draw(t, "target")
	}
	if use("by user") {
		f.User = rapid.SampledFrom(append(poolUsers, "*_*")).Draw(t, "user")
	}
	if use("by master") {
		f.Master = rapid.SampledFrom(poolMasters).Draw(t, "master")
	}
	if use("not fun") {
		f.NotFun = []string{"cmd.*", "test.ping"}
	}
	if use("by minion") {
		f.Minion = rapid.SampledFrom(poolMinions).Draw(t, "minion")
	}
	if use("by state") {
		states := []job.State{job.Running, job.Complete, job.Failed, job.Incomplete}
		f.State = rapid.SampledFrom(states).Draw(t, "state")
	}
	hours := func(name string) time.Duration {
		return time.Duration(rapid.IntRange(0, 72).Draw(t, name)) * time.Hour
	}
	if use("from") {
		f.From = now.Add(-hours("from ago"))
	}
	if use("to") {
		f.To = now.Add(-hours("to ago"))
	}
	return f
}

func (m *machine) events(t *rapid.T) {
	q := tiers.EventQuery{
		Tag: rapid.SampledFrom([]string{
			"", "salt/auth", "salt/job/*", "salt/*/new", "*ret*", "x\x00*", "?*", "none",
		}).Draw(t, "tag"),
		Master: rapid.SampledFrom([]string{"", "", "m1", "m*"}).Draw(t, "master"),
		Limit:  rapid.IntRange(1, 4).Draw(t, "limit"), Oldest: rapid.Bool().Draw(t, "oldest"),
	}
	if rapid.Bool().Draw(t, "bounded") {
		q.From = m.clock.Add(-time.Duration(rapid.IntRange(0, 60).Draw(t, "from")) * time.Minute)
		q.To = m.clock.Add(-time.Duration(rapid.IntRange(-5, 60).Draw(t, "to")) * time.Minute)
	}
	want := m.model.listEvents(q)
	var got []job.Event
	for pages := 0; ; pages++ {
		page, err := m.store.Events(context.Background(), q)
		if err != nil {
			t.Fatal(err)
		}
		if len(page.Events) > q.Limit || pages > 1000 {
			t.Fatalf("Events(%+v) = page %d of %d", q, pages, len(page.Events))
		}
		got = append(got, page.Events...)
		if q.Cursor = page.Next; q.Cursor == "" {
			break
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("Events(%+v) = %+v; want %+v", q, got, want)
	}
}

func (m *machine) lasts(t *rapid.T) {
	fun := rapid.SampledFrom(append(poolFuns, "", "none")).Draw(t, "fun")
	got, err := m.store.LastFunctions(context.Background(), fun)
	if err != nil {
		t.Fatal(err)
	}
	if want := m.model.lastFunctions(fun); !slices.Equal(got, want) {
		t.Fatalf("LastFunctions(%q) = %+v; want %+v", fun, got, want)
	}
}

func (m *machine) expire(t *rapid.T) {
	want := m.model.expire()
	got, err := m.store.Expire(context.Background(), m.clock)
	if err != nil {
		t.Fatal(err)
	}
	if got != want {
		t.Fatalf("Expire = %d; want %d", got, want)
	}
}

// checkJobs reads every job, and those that are not there.
func (m *machine) checkJobs(t *rapid.T) {
	for _, jid := range poolJIDs {
		got, err := m.store.Head(context.Background(), jid)
		j := m.model.jobs[jid]
		if j == nil {
			if !errors.Is(err, tiers.ErrNotFound) {
				t.Fatalf("Head(%q) = %+v, %v; want ErrNotFound", jid, got, err)
			}
			continue
		}
		if err != nil || !reflect.DeepEqual(normal(got), normal(j.head)) {
			t.Fatalf("Head(%q) = %+v, %v; want %+v", jid, got, err, j.head)
		}
		m.checkReturns(t, jid, j)
	}
}

// normal gives a head in which no minions are always nil.
func normal(h job.Head) job.Head {
	if len(h.Minions) == 0 {
		h.Minions = nil
	}
	return h
}

func (m *machine) checkReturns(t *rapid.T, jid job.JID, j *modelJob) {
	var want []job.Return
	for _, id := range poolMinions {
		if r, found := j.returns[id]; found {
			want = append(want, r)
		}
	}
	var got []job.Return
	q := tiers.ReturnQuery{MaxBytes: 6}
	for {
		page, err := m.store.Returns(context.Background(), jid, q)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, page.Returns...)
		if q.After = page.Next; q.After == "" {
			break
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("Returns(%q) = %+v; want %+v", jid, got, want)
	}
	if len(want) == 0 {
		return
	}
	last := want[len(want)-1]
	page, err := m.store.Returns(context.Background(), jid, tiers.ReturnQuery{
		Only: []job.Minion{"nobody", last.Minion, last.Minion},
	})
	if err != nil || !reflect.DeepEqual(page, tiers.ReturnPage{Returns: []job.Return{last}}) {
		t.Fatalf("Returns(%q, only %q) = %+v, %v; want %+v", jid, last.Minion, page, err, last)
	}
}
