package tiertest

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"saltern/job"
	"saltern/tiers"
)

func (s *suite) testReturns(t *testing.T) {
	s.run(t, "job without returns is an empty page", func(t *testing.T, u *subject) {
		jid := u.fresh(t)
		u.mergeOne(t, u.publish(jid, 1))
		page, err := u.Returns(ctx, jid, tiers.ReturnQuery{})
		if err != nil || len(page.Returns) != 0 || page.Next != "" {
			t.Errorf("Returns = %d returns, next %q, %v; want an empty page", len(page.Returns), page.Next, err)
		}
	})
	s.run(t, "queries", testQueries)
	s.run(t, "pages by bytes", testPages)
	s.run(t, "neighbouring jobs are kept apart", testNeighbours)
	s.run(t, "any query", testAnyQuery)
}

// some merges returns of minions, in an order of no meaning, and gives them sorted.
func (u *subject) some(t tester, jid job.JID, ids ...job.Minion) []job.Return {
	t.Helper()
	m := modelOf(jid)
	for i, id := range ids {
		r := u.ret(jid, id, i+1)
		u.mergeOne(t, r)
		m.merge(r)
	}
	return m.sorted()
}

func testQueries(t *testing.T, u *subject) {
	jid := u.fresh(t)
	all := u.some(t, jid, "d", "b", "a", "c", "b.x", "B")
	order := []job.Minion{"B", "a", "b", "b.x", "c", "d"}
	if got := minionsOf(all); !slices.Equal(got, order) {
		t.Fatalf("order of the test itself: %q", got)
	}
	for _, c := range []struct {
		name string
		q    tiers.ReturnQuery
		want []job.Minion
	}{
		{"all", tiers.ReturnQuery{}, order},
		{"after one of them", tiers.ReturnQuery{After: "b"}, order[3:]},
		{"after one that is not there", tiers.ReturnQuery{After: "b.w"}, order[3:]},
		{"after the last", tiers.ReturnQuery{After: "d"}, nil},
		{"only some", tiers.ReturnQuery{Only: []job.Minion{"d", "x", "a"}}, []job.Minion{"a", "d"}},
		{"only one, named twice", tiers.ReturnQuery{Only: []job.Minion{"c", "c"}}, []job.Minion{"c"}},
		{"only none", tiers.ReturnQuery{Only: []job.Minion{}}, nil},
		{"only unknown ones", tiers.ReturnQuery{Only: []job.Minion{"x", ""}}, nil},
		{"only some, after", tiers.ReturnQuery{Only: []job.Minion{"d", "a", "c"}, After: "a"}, []job.Minion{"c", "d"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := u.returns(t, jid, c.q)
			if !slices.Equal(minionsOf(got), c.want) {
				t.Errorf("minions %q; want %q", minionsOf(got), c.want)
			}
			for _, r := range got {
				sameReturns(t, []job.Return{r}, all[slices.Index(order, r.Minion):][:1])
			}
		})
	}
	t.Run("headers alone", func(t *testing.T) {
		got := u.returns(t, jid, tiers.ReturnQuery{NoPayload: true})
		for i := range got {
			// Payload may be there or not; the rest is as always.
			got[i].Ret, got[i].Rest, got[i].Times = all[i].Ret, all[i].Rest, all[i].Times
		}
		sameReturns(t, got, all)
	})
}

func testPages(t *testing.T, u *subject) {
	jid := u.fresh(t)
	m := modelOf(jid)
	for i := range 40 {
		r := u.ret(jid, job.Minion(fmt.Sprintf("m%02d", i)), i+1)
		r.Ret = make([]byte, 100*(i%5))
		u.mergeOne(t, r)
		m.merge(r)
	}
	for _, limit := range []int{1, 100, 1000, 1 << 20} {
		q, got := tiers.ReturnQuery{MaxBytes: limit}, []job.Return(nil)
		for {
			page, err := u.Returns(ctx, jid, q)
			if err != nil {
				t.Fatalf("Returns(%+v) = %v", q, err)
			}
			n := len(page.Returns)
			if n == 0 {
				t.Fatalf("Returns(%+v) gave an empty page; a page has at least one", q)
			}
			// The return that passes the limit may be in the page or not.
			if size := payloadOf(page.Returns[:n-1]); size > limit {
				t.Errorf("Returns(%+v) went on after %d bytes", q, size)
			}
			got = append(got, page.Returns...)
			if page.Next == "" {
				break
			}
			if last := page.Returns[n-1].Minion; page.Next != last {
				t.Errorf("next = %q; want the last minion %q", page.Next, last)
			}
			q.After = page.Next
		}
		sameReturns(t, got, m.sorted())
	}
}

func payloadOf(returns []job.Return) (bytes int) {
	for _, r := range returns {
		bytes += r.PayloadBytes()
	}
	return bytes
}

// testNeighbours has jids of which one begins another, as with suffixes in the jids of reactors.
func testNeighbours(t *testing.T, u *subject) {
	base := u.jid()
	jids := []job.JID{base, base + "_4711", base + "_47", base + "\x00", base + "\x00a", base + "/a", base[:19]}
	want := map[job.JID]*model{}
	for i, jid := range jids {
		u.hold(t, jid)
		facts := []job.Fact{u.publish(jid, i+1), u.ret(jid, "a", i+1), u.ret(jid, job.Minion("a"+jid[15:]), i+1)}
		u.merge(t, facts...)
		want[jid] = modelOf(jid, facts...)
	}
	for _, jid := range jids {
		u.same(t, want[jid])
	}
}

func testAnyQuery(t *testing.T, u *subject) {
	jid := u.fresh(t)
	var ids []job.Minion
	for i := range 30 {
		ids = append(ids, job.Minion(fmt.Sprintf("m%d", i*7%30)))
	}
	all := u.some(t, jid, ids...)
	rapid.Check(t, func(t *rapid.T) {
		q := tiers.ReturnQuery{
			After:    rapid.SampledFrom(append([]job.Minion{"", "m", "m1z", "zz"}, ids...)).Draw(t, "after"),
			MaxBytes: rapid.SampledFrom([]int{0, 1, 50, 300, 1 << 20}).Draw(t, "max bytes"),
		}
		if rapid.Bool().Draw(t, "some only") {
			q.Only = rapid.SliceOfN(rapid.SampledFrom(append([]job.Minion{"x", "m3.x"}, ids...)), 1, 8).Draw(t, "only")
		}
		var want []job.Return
		for _, r := range all {
			if r.Minion > q.After && (q.Only == nil || slices.Contains(q.Only, r.Minion)) {
				want = append(want, r)
			}
		}
		sameReturns(t, u.returns(t, jid, q), want)
	})
}
