package tiertest

import (
	"errors"
	"slices"
	"testing"
	"time"

	"saltern/job"
	"saltern/tiers"
)

// lastFunctions checks which minions have a return in the store.
func (u *subject) lastFunctions(t tester, fun string, want ...job.Minion) {
	t.Helper()
	all, err := u.store.LastFunctions(ctx, fun)
	if err != nil {
		t.Fatalf("LastFunctions(%q) = %v", fun, err)
	}
	var got []job.Minion
	for _, l := range all {
		got = append(got, l.Minion)
		if fun != "" && l.Fun != fun {
			t.Errorf("LastFunctions(%q) has %q with %q", fun, l.Minion, l.Fun)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("LastFunctions(%q) = %q; want %q", fun, got, want)
	}
}

func (s *suite) testLastFunctions(t *testing.T) {
	s.run(t, "none", func(t *testing.T, u *subject) {
		jid := u.jid()
		u.merge(t, u.publish(jid, 1), u.minions(jid, 1, "a")) // sent, not returned
		u.lastFunctions(t, "")
	})
	s.run(t, "that of the later job", func(t *testing.T, u *subject) {
		older, newer := u.jid(), u.jid()
		ping := func(r job.Return) job.Return {
			r.Fun, r.Failed = "test.ping", true
			return r
		}
		u.mergeOne(t, ping(u.ret(newer, "a", 1)))
		u.mergeOne(t, u.ret(older, "a", 2)) // comes later, of an earlier job
		u.mergeOne(t, u.ret(older, "b", 3))
		u.lastFunctions(t, "", "a", "b")
		u.lastFunctions(t, "test.ping", "a")
		u.lastFunctions(t, "state.apply", "b")
		u.lastFunctions(t, "test.*")
		all, err := u.store.LastFunctions(ctx, "test.ping")
		if err != nil || len(all) != 1 {
			t.Fatalf("LastFunctions = %+v, %v", all, err)
		}
		if l := all[0]; l.JID != newer || !l.Failed || l.Seen.IsZero() {
			t.Errorf("last function = %+v; want that of job %q, failed and seen", l, newer)
		}
	})
	s.run(t, "odd minions", func(t *testing.T, u *subject) {
		jid := u.jid()
		var want []job.Minion
		var facts []job.Fact
		for i, name := range oddNames {
			want = append(want, job.Minion(name))
			facts = append(facts, u.ret(jid, job.Minion(name), i+1))
		}
		u.merge(t, facts...)
		slices.Sort(want)
		u.lastFunctions(t, "", want...)
	})
}

func (s *suite) testExpire(t *testing.T) {
	if !s.expiresByItself {
		s.run(t, "jobs go when their time has passed", testExpireJobs)
	}
	s.run(t, "keep of the load rules", func(t *testing.T, u *subject) {
		jid := u.jid()
		minions := u.minions(jid, 1, "a")
		minions.Keep = 60
		load := u.publish(jid, 2)
		load.Keep = job.KeepForever
		u.mergeOne(t, minions)
		u.mergeOne(t, load)
		u.expire(t, u.base.Add(1000*24*time.Hour))
		u.same(t, modelOf(jid, minions, load))
	})
}

// margin is how late a store may remove a job: it may look at its jobs by the hour.
const margin = 25 * time.Hour

func (u *subject) expire(t tester, now time.Time) int {
	t.Helper()
	n, err := u.store.Expire(ctx, now)
	if err != nil {
		t.Fatalf("Expire = %v", err)
	}
	return n
}

func testExpireJobs(t *testing.T, u *subject) {
	const day = 86400
	keeps := []job.Keep{60, 2 * day, 7 * day, 365 * day} // more than the margin apart
	models := map[job.Keep]*model{}
	for n, keep := range append(slices.Clone(keeps), job.KeepForever) {
		jid := u.jid()
		load, minions, r := u.publish(jid, n+1), u.minions(jid, n+1, "a"), u.ret(jid, "a", n+1)
		load.Keep, minions.Keep, r.Keep = keep, keep, keep
		u.merge(t, load, minions, r, u.endTime(jid, n+1))
		models[keep] = modelOf(jid, load, minions, r, u.endTime(jid, n+1))
	}
	for i, keep := range keeps {
		jid := models[keep].head.JID
		born, _ := jid.Time()
		over := born.Add(time.Duration(keep) * time.Second)
		u.expire(t, over.Add(-time.Second))
		for _, left := range keeps[i:] {
			u.same(t, models[left])
		}
		if n := u.expire(t, over.Add(margin)); n == 0 {
			t.Errorf("Expire removed no job with a keep of %d s; want 1", keep)
		}
		u.missing(t, jid)
		jobs, _ := u.list(t, tiers.Filter{})
		if slices.Contains(jidsOf(jobs), jid) {
			t.Errorf("job %q expired and is listed", jid)
		}
	}
	u.expire(t, u.base.Add(100*365*24*time.Hour))
	u.same(t, models[job.KeepForever])
	u.lists(t, tiers.Filter{}, models[job.KeepForever].head.JID)
}

func (s *suite) testRegisters(t *testing.T) {
	s.run(t, "last write wins", func(t *testing.T, u *subject) {
		load := func(master string) []byte {
			t.Helper()
			data, err := u.store.LoadRegister(ctx, master)
			if err != nil {
				t.Fatalf("LoadRegister(%q) = %v", master, err)
			}
			return data
		}
		if _, err := u.store.LoadRegister(ctx, "m1"); !errors.Is(err, tiers.ErrNotFound) {
			t.Errorf("LoadRegister of none = %v; want ErrNotFound", err)
		}
		for i, name := range oddNames {
			for _, data := range [][]byte{{0x80}, noise(1000 * i), {byte(i)}} {
				if err := u.store.SaveRegister(ctx, name, data); err != nil {
					t.Fatalf("SaveRegister(%q) = %v", name, err)
				}
				if got := load(name); string(got) != string(data) {
					t.Errorf("LoadRegister(%q) gave %d bytes; want %d", name, len(got), len(data))
				}
			}
		}
		for i, name := range oddNames {
			if got := load(name); string(got) != string([]byte{byte(i)}) {
				t.Errorf("LoadRegister(%q) = %x; want %x", name, got, i)
			}
		}
	})
}
