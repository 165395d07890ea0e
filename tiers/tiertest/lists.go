package tiertest

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"saltern/job"
	"saltern/tiers"
)

func (s *suite) testList(t *testing.T) {
	s.run(t, "empty store", func(t *testing.T, u *subject) { u.lists(t, tiers.Filter{}) })
	s.run(t, "filters", testFilters)
	s.run(t, "summaries", testSummaries)
	s.run(t, "loads", testListedLoads)
	s.run(t, "pages", testListPages)
	s.run(t, "odd jids are listed", testListOdd)
	s.run(t, "foreign cursor is invalid", func(t *testing.T, u *subject) {
		u.merge(t, u.publish(u.jid(), 1))
		for _, cursor := range []string{"x", "0", "\x00", "20260801120000000000", "////", "AAAA"} {
			if _, err := u.store.List(ctx, tiers.Filter{Cursor: cursor}); !errors.Is(err, tiers.ErrInvalid) {
				t.Errorf("List with cursor %q: %v; want ErrInvalid", cursor, err)
			}
		}
	})
}

// list reads all pages of a list.
func (u *subject) list(t tester, f tiers.Filter) (jobs []tiers.Listed, hidden int) {
	t.Helper()
	for range 10_000 {
		page, err := u.store.List(ctx, f)
		if err != nil {
			t.Fatalf("List(%+v) = %v", f, err)
		}
		if f.Limit > 0 && len(page.Jobs) > f.Limit {
			t.Fatalf("List(%+v) gave %d jobs", f, len(page.Jobs))
		}
		jobs, hidden = append(jobs, page.Jobs...), hidden+page.Hidden
		if page.Next == "" {
			return jobs, hidden
		}
		f.Cursor = page.Next
	}
	t.Fatalf("List(%+v) has no end", f)
	return nil, 0
}

// lists checks which jobs a list has, in which order.
func (u *subject) lists(t tester, f tiers.Filter, want ...job.JID) {
	t.Helper()
	jobs, _ := u.list(t, f)
	if got := jidsOf(jobs); !slices.Equal(got, want) {
		t.Errorf("List(%+v) = %q; want %q", f, got, want)
	}
}

func jidsOf(jobs []tiers.Listed) (jids []job.JID) {
	for _, j := range jobs {
		jids = append(jids, j.JID)
	}
	return jids
}

func testFilters(t *testing.T, u *subject) {
	// Made oldest first and merged in another order: the time of the jid counts.
	loads := []job.Load{}
	for n, l := range []struct{ fun, tgt, user, master string }{
		{"test.ping", "*", "root", "m1"},
		{"state.apply", "web*", "sudo_alice", "m1"},
		{"state.highstate", "web01", "sudo_alice", "m2"},
		{"saltutil.find_job", "web01,web02", "root", "m1"},
		{"cmd.run,test.ping", "G@os:Debian and web*", "*", "m*"},
	} {
		load := u.publish(u.jid(), n+1)
		load.Fun, load.Target, load.User, load.Master = l.fun, l.tgt, l.user, l.master
		loads = append(loads, load)
	}
	ping, apply, high, find, multi := loads[0].JID, loads[1].JID, loads[2].JID, loads[3].JID, loads[4].JID
	for _, n := range []int{2, 0, 4, 1, 3} {
		u.mergeOne(t, loads[n])
	}
	bad := u.ret(high, "web01", 2)
	bad.Failed = true
	u.merge(t,
		u.minions(ping, 1, "web01", "web02"), u.ret(ping, "web01", 2), u.ret(ping, "web02", 3),
		u.minions(apply, 1, "web01", "web02"), u.ret(apply, "web01", 2),
		u.minions(high, 1, "web01"), bad,
		u.ret(find, "web03", 2))
	at := func(jid job.JID) time.Time {
		when, _ := jid.Time()
		return when
	}
	for _, c := range []struct {
		name string
		f    tiers.Filter
		want []job.JID
	}{
		{"none", tiers.Filter{}, []job.JID{multi, find, high, apply, ping}},
		{"fun", tiers.Filter{Fun: "test.ping"}, []job.JID{ping}},
		{"fun as a pattern", tiers.Filter{Fun: "state.*"}, []job.JID{high, apply}},
		{"fun with sets", tiers.Filter{Fun: "[!s]*"}, []job.JID{multi, ping}},
		{"fun of nobody", tiers.Filter{Fun: "state"}, nil},
		{"target", tiers.Filter{Target: "web01"}, []job.JID{high}},
		{"target as a pattern", tiers.Filter{Target: "web*"}, []job.JID{find, high, apply}},
		{"target with a slash or not", tiers.Filter{Target: "*"}, []job.JID{multi, find, high, apply, ping}},
		{"user", tiers.Filter{User: "root"}, []job.JID{find, ping}},
		{"user as a pattern", tiers.Filter{User: "sudo_*"}, []job.JID{high, apply}},
		{"master", tiers.Filter{Master: "m2"}, []job.JID{high}},
		{"not fun", tiers.Filter{NotFun: []string{"saltutil.*", "test.ping"}}, []job.JID{multi, high, apply}},
		{"minion that was sent it", tiers.Filter{Minion: "web02"}, []job.JID{apply, ping}},
		{"minion that returned it", tiers.Filter{Minion: "web03"}, []job.JID{find}},
		{"minion is no pattern", tiers.Filter{Minion: "web*"}, nil},
		{"complete", tiers.Filter{State: job.Complete}, []job.JID{find, ping}},
		{"failed", tiers.Filter{State: job.Failed}, []job.JID{high}},
		{"from is included", tiers.Filter{From: at(high)}, []job.JID{multi, find, high}},
		{"to is not", tiers.Filter{To: at(high)}, []job.JID{apply, ping}},
		{"from and to", tiers.Filter{From: at(apply), To: at(find)}, []job.JID{high, apply}},
		{"from after all", tiers.Filter{From: at(multi).Add(time.Hour)}, nil},
		{"to before all", tiers.Filter{To: at(ping)}, nil},
		{"several", tiers.Filter{Fun: "state.*", Minion: "web01", User: "sudo_alice", Master: "m1"}, []job.JID{apply}},
	} {
		t.Run(c.name, func(t *testing.T) {
			u.lists(t, c.f, c.want...)
			f := c.f
			f.Limit = 1
			u.lists(t, f, c.want...)
		})
	}
	t.Run("hidden are counted", func(t *testing.T) {
		for _, limit := range []int{0, 1, 2} {
			_, hidden := u.list(t, tiers.Filter{NotFun: []string{"saltutil.*", "test.ping"}, Limit: limit})
			if hidden != 2 {
				t.Errorf("with limit %d %d are hidden; want 2", limit, hidden)
			}
		}
	})
}

func testSummaries(t *testing.T, u *subject) {
	jid := u.jid()
	publish := u.publish(jid, 1)
	bad := u.ret(jid, "c", 4)
	bad.Failed = true
	when, _ := jid.Time()
	want := job.Summary{
		JID: jid, Time: when, Fun: publish.Fun, Target: publish.Target, TargetType: publish.TargetType,
		User: publish.User, Master: publish.Master, Keep: publish.Keep,
	}
	for _, step := range []struct {
		fact   job.Fact
		change func()
	}{
		{publish, func() {}},
		{u.minions(jid, 1, "a", "b", "c"), func() { want.Expected, want.Missing = 3, 3 }},
		{u.ret(jid, "a", 2), func() { want.Returned, want.Missing = 1, 2 }},
		{u.ret(jid, "a", 3), func() {}}, // differs, and is not kept
		{bad, func() { want.Returned, want.Missing, want.Failed = 2, 1, 1 }},
		{bad, func() {}},
		{u.ret(jid, "x", 5), func() { want.Returned = 3 }},
		{u.minions(jid, 6, "x"), func() { want.Expected = 4 }}, // it has returned
		{u.minions(jid, 7, "y", "a"), func() { want.Expected, want.Missing = 5, 2 }},
		{u.returnLoad(jid, 8), func() {}},
	} {
		u.mergeOne(t, step.fact)
		step.change()
		jobs, _ := u.list(t, tiers.Filter{})
		if len(jobs) != 1 {
			t.Fatalf("%d jobs; want 1", len(jobs))
		}
		got := jobs[0].Summary
		if got.Last.IsZero() {
			t.Error("Last is not set")
		}
		got.Last, got.Time = time.Time{}, got.Time.UTC()
		if !reflect.DeepEqual(got, want) {
			t.Errorf("after %T: summary %+v\nwant %+v", step.fact, got, want)
		}
	}
}

func testListedLoads(t *testing.T, u *subject) {
	known, unknown := u.jid(), u.jid()
	facts := []job.Fact{u.publish(known, 1), u.minions(known, 1, "b", "a"), u.endTime(known, 2)}
	u.merge(t, facts...)
	u.mergeOne(t, u.ret(unknown, "a", 1))
	jobs, _ := u.list(t, tiers.Filter{Loads: true})
	if got := jidsOf(jobs); !slices.Equal(got, []job.JID{unknown, known}) {
		t.Fatalf("jobs %q", got)
	}
	for i, want := range []job.Head{modelOf(unknown).head, modelOf(known, facts...).head} {
		if jobs[i].Head == nil {
			t.Errorf("job %d has no head", i)
			continue
		}
		if got := showHead(*jobs[i].Head); got != showHead(want) {
			t.Errorf("head %s; want %s", got, showHead(want))
		}
	}
}

// testListPages writes jobs between pages: what was there before is given just once all the same.
func testListPages(t *testing.T, u *subject) {
	const n = 60
	var want []job.JID
	var facts []job.Fact
	for i := range n {
		jid := u.jid()
		if i%3 == 1 {
			jid = want[0] + "_1" // the same time as the job before
		}
		facts = append(facts, u.publish(jid, i+1))
		want = slices.Insert(want, 0, jid)
	}
	u.merge(t, facts...)
	f := tiers.Filter{Limit: 7}
	var got []tiers.Listed
	for {
		page, err := u.store.List(ctx, f)
		if err != nil {
			t.Fatalf("List(%+v) = %v", f, err)
		}
		got = append(got, page.Jobs...)
		if page.Next == "" {
			break
		}
		f.Cursor = page.Next
		u.mergeOne(t, u.publish(u.jid(), 1)) // later than all
		u.mergeOne(t, u.ret(want[0], job.Minion(fmt.Sprint(len(got))), 1))
	}
	for i := 1; i < len(got); i++ {
		if got[i].Time.After(got[i-1].Time) {
			t.Errorf("job %d of %v comes after one of %v", i, got[i].Time, got[i-1].Time)
		}
	}
	jids := jidsOf(got)
	slices.Sort(jids)
	slices.Sort(want)
	if !slices.Equal(jids, want) {
		t.Errorf("%d jobs in pages; want each of %d once", len(jids), len(want))
	}
}

func testListOdd(t *testing.T, u *subject) {
	var want []job.JID
	for i, name := range oddNames {
		u.mergeOne(t, u.publish(job.JID(name), i+1))
		want = append(want, job.JID(name))
	}
	for _, limit := range []int{0, 1, 7} {
		jobs, _ := u.list(t, tiers.Filter{Limit: limit})
		got := jidsOf(jobs)
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("with limit %d: %d jobs; want each of %d once", limit, len(got), len(want))
		}
	}
}
