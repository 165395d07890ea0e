package tiertest

import (
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"saltern/job"
	"saltern/tiers"
)

func (s *suite) testMerge(t *testing.T) {
	s.run(t, "unknown job is not found", func(t *testing.T, u *subject) {
		u.missing(t, u.jid())
	})
	s.run(t, "no facts", func(t *testing.T, u *subject) {
		u.merge(t)
	})
	s.run(t, "each kind of fact alone makes a job", testEachKindAlone)
	s.run(t, "one call with all facts", func(t *testing.T, u *subject) {
		jid := u.fresh(t)
		facts := append(u.loads(jid), u.answers(jid)...)
		u.merge(t, facts...)
		u.same(t, modelOf(jid, facts...))
	})
	s.run(t, "facts of several jobs in one call", func(t *testing.T, u *subject) {
		a, b := u.fresh(t), u.fresh(t)
		ofA, ofB := u.answers(a), u.answers(b)[:2]
		u.merge(t, slices.Concat(ofB[:1], ofA, ofB[1:])...)
		u.same(t, modelOf(a, ofA...))
		u.same(t, modelOf(b, ofB...))
	})
	s.run(t, "loads in every order", func(t *testing.T, u *subject) { u.everyOrder(t, u.loads) })
	s.run(t, "returns in every order", func(t *testing.T, u *subject) { u.everyOrder(t, u.answers) })
	s.run(t, "any facts in any order and number", testAnyOrder)
	s.run(t, "S01 the publish stays", testPublishStays)
	s.run(t, "S18 two masters store one jid", testTwoMasters)
	s.run(t, "P18 lists of minions are united", testMinionsUnited)
	s.run(t, "the first return stays", testFirstReturnStays)
	s.run(t, "nocache drops returns", testNoCache)
}

// loads are facts of which the order matters most if rules are broken.
func (u *subject) loads(jid job.JID) []job.Fact {
	return []job.Fact{
		u.publish(jid, 1), u.load(jid, 2), u.returnLoad(jid, 3), u.endTime(jid, 4), u.endTime(jid, 5),
	}
}

func (u *subject) answers(jid job.JID) []job.Fact {
	first := u.ret(jid, "a", 1)
	return []job.Fact{
		first, u.resent(first, 2), u.ret(jid, "a", 3), u.ret(jid, "b", 4), u.minions(jid, 5, "c", "a", "c"),
	}
}

func testEachKindAlone(t *testing.T, u *subject) {
	for _, make := range []func(job.JID) job.Fact{
		func(jid job.JID) job.Fact { return u.publish(jid, 1) },
		func(jid job.JID) job.Fact { return u.returnLoad(jid, 1) },
		func(jid job.JID) job.Fact { return u.minions(jid, 1, "a") },
		func(jid job.JID) job.Fact { return u.ret(jid, "a", 1) },
		func(jid job.JID) job.Fact { return u.endTime(jid, 1) },
		func(jid job.JID) job.Fact { return job.NoCache{JID: jid, Version: u.version(1), Keep: 60} },
	} {
		jid := u.fresh(t)
		fact := make(jid)
		u.mergeOne(t, fact)
		u.same(t, modelOf(jid, fact))
	}
}

// everyOrder merges facts one by one in each of their orders, each into a job of its own.
func (u *subject) everyOrder(t *testing.T, facts func(job.JID) []job.Fact) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, 16) // a durable tier shares its syncs among them
	for order := range permutations(len(facts(""))) {
		wg.Add(1)
		slots <- struct{}{}
		go func() {
			defer wg.Done()
			defer func() { <-slots }()
			t := goTester{t}
			jid := u.jid()
			u.hold(t, jid)
			all := facts(jid)
			for _, i := range order {
				u.mergeOne(t, all[i])
			}
			u.same(t, modelOf(jid, all...))
		}()
	}
	wg.Wait()
}

// permutations gives every order of the numbers below n.
func permutations(n int) func(yield func([]int) bool) {
	return func(yield func([]int) bool) {
		var extend func(order []int) bool
		extend = func(order []int) bool {
			if len(order) == n {
				return yield(slices.Clone(order))
			}
			for i := range n {
				if !slices.Contains(order, i) && !extend(append(slices.Clip(order), i)) {
					return false
				}
			}
			return true
		}
		extend(nil)
	}
}

func testAnyOrder(t *testing.T, u *subject) {
	rapid.Check(t, func(t *rapid.T) {
		jid := u.fresh(t)
		facts := u.genFacts(jid).Draw(t, "facts")
		again := rapid.SliceOfN(rapid.SampledFrom(facts), 0, 4).Draw(t, "again")
		order := rapid.Permutation(append(slices.Clone(facts), again...)).Draw(t, "order")
		for len(order) > 0 {
			n := rapid.IntRange(1, len(order)).Draw(t, "in one call")
			u.merge(t, order[:n]...)
			order = order[n:]
		}
		u.same(t, modelOf(jid, facts...))
	})
}

// testPublishStays is saltstack/salt#53752: Salt stores the return of every minion as a load too.
func testPublishStays(t *testing.T, u *subject) {
	jid := u.fresh(t)
	publish := u.publish(jid, 1)
	u.merge(t, publish, u.minions(jid, 1, "alpha", "beta"))
	for n, id := range []job.Minion{"alpha", "beta"} {
		u.merge(t, u.returnLoad(jid, n+2), u.ret(jid, id, n+2))
	}
	h := u.head(t, jid)
	if h.Load == nil || h.Load.Target != publish.Target || string(h.Load.Payload) != string(publish.Payload) {
		t.Errorf("Head(%q) = %s; want the load of the publish", jid, showHead(h))
	}
	second := u.publish(jid, 9)
	u.mergeOne(t, second)
	if got := u.head(t, jid).Load; got.Version != second.Version {
		t.Errorf("load has version %d after a second publish; want %d", got.Version, second.Version)
	}
}

func testTwoMasters(t *testing.T, u *subject) {
	rapid.Check(t, func(t *rapid.T) {
		jid := u.fresh(t)
		other := u.publish(jid, 2)
		other.Master = "m2"
		again := u.resent(u.ret(jid, "alpha", 3), 4)
		again.Master = "m2"
		facts := []job.Fact{
			u.publish(jid, 1), u.minions(jid, 1, "alpha"), other, u.minions(jid, 2, "beta"),
			u.ret(jid, "alpha", 3), again,
		}
		for _, f := range rapid.Permutation(facts).Draw(t, "schedule") {
			u.mergeOne(t, f)
		}
		u.same(t, modelOf(jid, facts...))
	})
}

func testMinionsUnited(t *testing.T, u *subject) {
	jid := u.fresh(t)
	u.mergeOne(t, u.publish(jid, 1))
	for n, ids := range [][]job.Minion{{"beta", "alpha"}, {"gamma"}, {}, {"delta", "alpha"}} {
		u.merge(t, u.publish(jid, n+2), u.minions(jid, n+2, ids...))
	}
	syndic := u.minions(jid, 9, "epsilon")
	syndic.Syndic = "s1"
	u.mergeOne(t, syndic)
	want := []job.Minion{"alpha", "beta", "delta", "epsilon", "gamma"}
	if got := u.head(t, jid).Minions; !slices.Equal(got, want) {
		t.Errorf("minions = %q; want %q", got, want)
	}
}

func testFirstReturnStays(t *testing.T, u *subject) {
	jid := u.fresh(t)
	u.mergeOne(t, u.publish(jid, 1))
	first := u.ret(jid, "a", 5)
	other := u.ret(jid, "a", 7)
	for _, step := range []struct {
		name string
		fact job.Return
		want job.Outcome
		left job.Return
	}{
		{"first", first, job.Stored, first},
		{"the very same", first, job.Repeat, first},
		{"resent", u.resent(first, 6), job.Repeat, first},
		{"another", other, job.Differs, first},
		{"an older other one", u.ret(jid, "a", 3), job.Stored, u.ret(jid, "a", 3)},
		{"the first again", first, job.Differs, u.ret(jid, "a", 3)},
	} {
		got := u.mergeOne(t, step.fact)
		if hinted := u.hints && step.name == "the very same" && got == job.Stored; got != step.want && !hinted {
			t.Errorf("%s: outcome %v; want %v", step.name, got, step.want)
		}
		sameReturns(t, u.returns(t, jid, tiers.ReturnQuery{}), []job.Return{step.left})
	}
}

func testNoCache(t *testing.T, u *subject) {
	jid := u.fresh(t)
	facts := []job.Fact{job.NoCache{JID: jid, Version: u.version(1), Keep: 60}, u.publish(jid, 2)}
	u.merge(t, facts...)
	if got := u.mergeOne(t, u.ret(jid, "a", 3)); got != job.Dropped {
		t.Errorf("outcome of a return = %v; want %v", got, job.Dropped)
	}
	u.same(t, modelOf(jid, facts...))
}

// goTester lets goroutines of a test report: Fatalf then ends the test at its end, and the goroutine
// not at all.
type goTester struct{ *testing.T }

func (t goTester) Fatalf(format string, args ...any) {
	t.Helper()
	t.Errorf(format, args...)
}
