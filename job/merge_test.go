package job_test

import (
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"saltern/job"
)

// checkLaws proves the three laws on which everything else stands (doc.go).
func checkLaws[T any](t *testing.T, g *rapid.Generator[T], merge func(a, b T) T) {
	t.Helper()
	rapid.Check(t, func(t *rapid.T) {
		a := g.Draw(t, "a")
		c := g.Draw(t, "c")
		same(t, "idempotent", merge(a, a), a)
		for _, b := range variants(a, g.Draw(t, "b")) {
			same(t, "commutative", merge(a, b), merge(b, a))
			same(t, "associative", merge(merge(a, b), c), merge(a, merge(b, c)))
		}
	})
}

func same(t rapid.TB, law string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("not %s: %+v and %+v", law, got, want)
	}
}

func TestMergeLaws(t *testing.T) {
	t.Run("load", func(t *testing.T) { checkLaws(t, genLoad(), job.MergeLoad) })
	t.Run("end time", func(t *testing.T) { checkLaws(t, genEndTime(), job.MergeEndTime) })
	t.Run("nocache", func(t *testing.T) { checkLaws(t, genNoCache(), job.MergeNoCache) })
	t.Run("event", func(t *testing.T) { checkLaws(t, genEvent(), job.MergeEvent) })
	t.Run("last function", func(t *testing.T) { checkLaws(t, genLastFunction(), job.MergeLastFunction) })
	t.Run("return", func(t *testing.T) {
		checkLaws(t, genReturn(), func(a, b job.Return) job.Return {
			winner, _ := job.MergeReturn(a, b)
			return winner
		})
	})
	t.Run("minions", func(t *testing.T) {
		// A list on its way into a union is in no order; united once, it is in normal form.
		united := rapid.Map(genMinions(), func(m []job.Minion) minionSet { return minionSet{job.UnionMinions(m)} })
		checkLaws(t, united, func(a, b minionSet) minionSet {
			return minionSet{job.UnionMinions(a.IDs, b.IDs)}
		})
	})
	t.Run("head", func(t *testing.T) { checkLaws(t, genHead(), job.MergeHead) })
}

type minionSet struct{ IDs []job.Minion }

func genHead() *rapid.Generator[job.Head] {
	return rapid.Custom(func(t *rapid.T) job.Head {
		return job.Head{
			JID: jid, Load: genPtr(genLoad()).Draw(t, "load"),
			Minions: job.UnionMinions(genMinions().Draw(t, "minions")),
			EndTime: genPtr(genEndTime()).Draw(t, "end time"),
			NoCache: genPtr(genNoCache()).Draw(t, "nocache"),
		}
	})
}

func headOf(facts []job.Fact) job.Head {
	h := job.Head{JID: jid}
	for _, f := range facts {
		h = h.With(f)
	}
	return h
}

// TestHeadWithAnyOrder is what retries, replays and back-fills stand on: the same facts make the
// same head in whatever order and however often they come, and merged in parts or one by one.
func TestHeadWithAnyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		facts := rapid.SliceOfN(genFact(), 0, 8).Draw(t, "facts")
		want := headOf(facts)

		again := rapid.SliceOfN(rapid.SampledFrom(append(facts, job.Event{})), 0, 4).Draw(t, "repeats")
		shuffled := rapid.Permutation(append(append([]job.Fact{}, facts...), again...)).Draw(t, "order")
		same(t, "the same in any order", headOf(shuffled), want)

		cut := rapid.IntRange(0, len(facts)).Draw(t, "cut")
		parts := job.MergeHead(headOf(facts[:cut]), headOf(facts[cut:]))
		same(t, "the same in parts", parts, want)
	})
}

func TestHeadWithLeavesReceiver(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := genHead().Draw(t, "head")
		before := job.MergeHead(h, h) // a copy that shares no slice of minions
		if h.Load != nil {
			load := *h.Load
			before.Load = &load
		}
		h.With(genFact().Draw(t, "fact"))
		same(t, "unchanged", h, before)
	})
}

// TestPublishedLoadStays is saltstack/salt#53752: Salt calls save_load with the return of every
// minion, later than the publish, and the target and arguments of the job must stay.
func TestPublishedLoadStays(t *testing.T) {
	publish := job.Load{JID: jid, Version: 1, Rank: job.RankPublish, Target: "*"}
	for _, later := range []job.Load{
		{JID: jid, Version: 2, Rank: job.RankReturn}, {JID: jid, Version: 3, Rank: job.RankLoad},
	} {
		if got := job.MergeLoad(publish, later); got.Target != "*" {
			t.Errorf("a load of rank %d replaced the publish", later.Rank)
		}
	}
	second := job.Load{JID: jid, Version: 2, Rank: job.RankPublish, Target: "db*"}
	if got := job.MergeLoad(publish, second); got.Target != "db*" {
		t.Errorf("second publish: target %q; want %q, as local_cache overwrites", got.Target, "db*")
	}
}

func TestReturns(t *testing.T) {
	zero, one, yes, no := int64(0), int64(1), true, false
	first := job.Return{JID: jid, Minion: "m", Version: 1, RetCode: &zero, Success: &yes,
		Ret: []byte{0xc3}, Rest: []byte{0x80}, Times: []byte{0x80}}
	for _, c := range []struct {
		name   string
		change func(*job.Return)
		differ bool
	}{
		{"resent", func(r *job.Return) { r.Times = []byte{0x81, 0xa2, 't', 's', 1} }, false},
		{"other cmd", func(r *job.Return) { r.Rest = []byte{0x81, 0xa3, 'c', 'm', 'd', 1} }, false},
		{"other return", func(r *job.Return) { r.Ret = []byte{0xc2} }, true},
		{"other retcode", func(r *job.Return) { r.RetCode = &one }, true},
		{"no retcode", func(r *job.Return) { r.RetCode = nil }, true},
		{"other success", func(r *job.Return) { r.Success = &no }, true},
		{"no success", func(r *job.Return) { r.Success = nil }, true},
	} {
		second := first
		second.Version = 2
		c.change(&second)
		winner, differ := job.MergeReturn(second, first)
		if differ != c.differ {
			t.Errorf("%s: differ = %v; want %v", c.name, differ, c.differ)
		}
		if !reflect.DeepEqual(winner, first) {
			t.Errorf("%s: the second return replaced the first", c.name)
		}
	}
}
