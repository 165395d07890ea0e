package tiertest

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"saltern/job"
	"saltern/tiers"
)

// oddNames are ids that have broken stores: separators of paths, keys and patterns, what is no
// UTF-8, and the longest that is allowed. Anybody may choose a jid, and a minion names itself.
var oddNames = []string{
	"a", "_", ".", "..", "../../etc/passwd", "/", "//", "a/b", "a\\b", "a:b", "a,b", "a b", " ", "*", "?", "[a]",
	"{a}", "%", "%s", "'", "\"", "`", "$(a)", "#", "0", "-1", "null", "\x00", "a\x00", "\x00a", "a\x00b", "\x01",
	"\x7f", "\n", "a\r\nb", "\xff", "\xff\xff", "\x80", "\xed\xa0\x80", "a\xed\xbf\xbf", "\xc3\x28", "é", "e\u0301",
	"日本", "\U0001f9c2", "\u202e", "\ufeff", "192.168.0.1", "::1", "web-01.example.com", "A", "20260801120000000000",
	strings.Repeat("x", 1024), strings.Repeat("/", 1024), strings.Repeat("\x00", 1024), strings.Repeat("\xff", 1024),
}

func (s *suite) testIdentifiers(t *testing.T) {
	s.run(t, "odd jids", testOddJIDs)
	s.run(t, "odd minion ids", testOddMinions)
	s.run(t, "odd text in headers", testOddHeaders)
	s.run(t, "any ids", testAnyIDs)
}

func testOddJIDs(t *testing.T, u *subject) {
	want := map[job.JID]*model{}
	for i, name := range oddNames {
		jid := job.JID(name)
		u.missing(t, jid)
		u.hold(t, jid)
		facts := []job.Fact{u.publish(jid, i+1), u.minions(jid, i+1, "a"), u.ret(jid, "a", i+1), u.endTime(jid, i+1)}
		u.merge(t, facts...)
		want[jid] = modelOf(jid, facts...)
	}
	for _, m := range want {
		u.same(t, m)
	}
}

func testOddMinions(t *testing.T, u *subject) {
	jid := u.fresh(t)
	var facts []job.Fact
	for i, name := range oddNames {
		facts = append(facts, u.minions(jid, i+1, job.Minion(name)), u.ret(jid, job.Minion(name), i+1))
	}
	u.merge(t, facts...)
	m := modelOf(jid, facts...)
	u.same(t, m)
	for _, r := range m.sorted() {
		sameReturns(t, u.returns(t, jid, tiers.ReturnQuery{Only: []job.Minion{r.Minion}}), []job.Return{r})
	}
	sameReturns(t, u.returns(t, jid, tiers.ReturnQuery{MaxBytes: 1}), m.sorted())
}

func testOddHeaders(t *testing.T, u *subject) {
	for i, text := range append(oddNames, "") {
		jid := u.fresh(t)
		l, e, r, m := u.publish(jid, i), u.endTime(jid, i), u.ret(jid, "a", i), u.minions(jid, i, "a")
		l.Fun, l.Target, l.TargetType, l.User, l.Master, l.Surrogates = text, text, text, text, text, true
		r.Fun, r.Master, r.Surrogates, r.RetCode, r.Success = text, text, true, nil, nil
		e.Text, m.Syndic = text, text
		u.merge(t, l, e, r, m)
		u.same(t, modelOf(jid, l, e, r, m))
	}
}

func testAnyIDs(t *testing.T, u *subject) {
	const jidBytes = 40
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SliceOfN(rapid.SampledFrom([]byte("\x00\x01\xff/.:a")), 0, jidBytes)
		n++ // a jid of this draw alone
		jid := job.JID(fmt.Sprintf("%s%d", name.Draw(t, "jid"), n))
		u.hold(t, jid)
		m := modelOf(jid)
		for i := range rapid.IntRange(1, 5).Draw(t, "returns") {
			r := u.ret(jid, job.Minion("a"+string(name.Draw(t, "minion"))), i+1)
			u.mergeOne(t, r)
			m.merge(r)
		}
		u.same(t, m)
	})
}
