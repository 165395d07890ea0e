package tiertest

import (
	"errors"
	"reflect"
	"slices"

	"saltern/job"
	"saltern/tiers"
)

// tester is what *testing.T and *rapid.T have in common here.
type tester interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// fresh gives a job of which nothing is known, and which a cache holds as such: what is merged into
// it is then all that there is.
func (u *subject) fresh(t tester) job.JID {
	t.Helper()
	jid := u.jid()
	u.hold(t, jid)
	return jid
}

// hold makes a cache hold a job without any fact. A store needs no such thing.
func (u *subject) hold(t tester, jid job.JID) {
	t.Helper()
	if u.filler == nil {
		return
	}
	u.fill(t, tiers.Snapshot{Head: job.Head{JID: jid}, HasReturns: true})
	if _, err := u.Head(ctx, jid); err != nil {
		t.Fatalf("Head(%q) after it was filled = %v; an empty cache has to hold it", jid, err)
	}
}

// fill fills a cache, with the lease of its miss where it gives one.
func (u *subject) fill(t tester, s tiers.Snapshot) {
	t.Helper()
	_, err := u.Head(ctx, s.Head.JID)
	if miss, ok := errors.AsType[*tiers.Miss](err); ok {
		s.Lease = miss.Lease
	}
	if err := u.filler.Fill(ctx, s); err != nil {
		t.Fatalf("Fill(%q) = %v", s.Head.JID, err)
	}
}

// merge merges facts in one call.
func (u *subject) merge(t tester, facts ...job.Fact) []job.Outcome {
	t.Helper()
	outcomes, err := u.Merge(ctx, facts)
	if err != nil {
		t.Fatalf("Merge of %d facts = %v", len(facts), err)
	}
	if len(outcomes) != len(facts) {
		t.Fatalf("Merge of %d facts gave %d outcomes", len(facts), len(outcomes))
	}
	return outcomes
}

// mergeOne merges one fact.
func (u *subject) mergeOne(t tester, f job.Fact) job.Outcome {
	t.Helper()
	return u.merge(t, f)[0]
}

func (u *subject) head(t tester, jid job.JID) job.Head {
	t.Helper()
	h, err := u.Head(ctx, jid)
	if err != nil {
		t.Fatalf("Head(%q) = %v", jid, err)
	}
	return h
}

// returns reads all pages of a job's returns, from q on.
func (u *subject) returns(t tester, jid job.JID, q tiers.ReturnQuery) []job.Return {
	t.Helper()
	var all []job.Return
	for {
		page, err := u.Returns(ctx, jid, q)
		if err != nil {
			t.Fatalf("Returns(%q, %+v) = %v", jid, q, err)
		}
		all = append(all, page.Returns...)
		if page.Next == "" {
			return all
		}
		if page.Next <= q.After {
			t.Fatalf("Returns after %q goes on after %q; want a later minion", q.After, page.Next)
		}
		q.After = page.Next
	}
}

// missing checks that a tier does not have a job.
func (u *subject) missing(t tester, jid job.JID) {
	t.Helper()
	if _, err := u.Head(ctx, jid); !errors.Is(err, tiers.ErrNotFound) {
		t.Errorf("Head(%q) = %v; want ErrNotFound", jid, err)
	}
	if _, err := u.Returns(ctx, jid, tiers.ReturnQuery{}); !errors.Is(err, tiers.ErrNotFound) {
		t.Errorf("Returns(%q) = %v; want ErrNotFound", jid, err)
	}
}

// model is what the facts of a job make, by the rules of package job and nothing else.
type model struct {
	head    job.Head
	returns map[job.Minion]job.Return
}

func modelOf(jid job.JID, facts ...job.Fact) *model {
	m := &model{head: job.Head{JID: jid}, returns: map[job.Minion]job.Return{}}
	for _, f := range facts {
		m.merge(f)
	}
	return m
}

func (m *model) merge(f job.Fact) {
	m.head = m.head.With(f)
	r, isReturn := f.(job.Return)
	if !isReturn {
		return
	}
	if have, there := m.returns[r.Minion]; there {
		r, _ = job.MergeReturn(have, r)
	}
	m.returns[r.Minion] = r
}

// sorted gives the model's returns in the order of their minions.
func (m *model) sorted() []job.Return {
	all := make([]job.Return, 0, len(m.returns))
	for _, id := range m.minions() {
		all = append(all, m.returns[id])
	}
	return all
}

func (m *model) minions() []job.Minion {
	ids := make([]job.Minion, 0, len(m.returns))
	for id := range m.returns {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// same checks that the tier has just what the model has.
func (u *subject) same(t tester, want *model) {
	t.Helper()
	jid := want.head.JID
	if got := u.head(t, jid); !reflect.DeepEqual(normalHead(got), normalHead(want.head)) {
		t.Errorf("Head(%q) = %s\nwant %s", jid, showHead(got), showHead(want.head))
	}
	sameReturns(t, u.returns(t, jid, tiers.ReturnQuery{}), want.sorted())
}

func sameReturns(t tester, got, want []job.Return) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%d returns, of %.200q; want %d, of %.200q",
			len(got), minionsOf(got), len(want), minionsOf(want))
		return
	}
	for i := range got {
		if !reflect.DeepEqual(normalReturn(got[i]), normalReturn(want[i])) {
			t.Errorf("return %d is %s\nwant %s", i, showReturn(got[i]), showReturn(want[i]))
			return
		}
	}
}

func minionsOf(returns []job.Return) []job.Minion {
	ids := make([]job.Minion, len(returns))
	for i := range returns {
		ids[i] = returns[i].Minion
	}
	return ids
}
