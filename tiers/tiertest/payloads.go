package tiertest

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"saltern/job"
	"saltern/tiers"
)

func (s *suite) testPayloads(t *testing.T) {
	s.run(t, "bytes are opaque", testOpaque)
	s.run(t, "return of 8 MiB", testLargeReturn)
	s.run(t, "job of many minions", testManyMinions)
}

// testOpaque has payloads that are MessagePack, that are none, and that repeat themselves.
func testOpaque(t *testing.T, u *subject) {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	for i, payload := range [][]byte{
		{}, {0}, {0xc0}, {0xc1}, {0x80}, all, make([]byte, 100_000), []byte("Sn\x01\x01 looks like an envelope"),
		{0x28, 0xb5, 0x2f, 0xfd, 0x00}, // like zstd
		[]byte("\xa3\xed\xa0\x80"),
	} {
		jid := u.fresh(t)
		l, r := u.publish(jid, i+1), u.ret(jid, "a", i+1)
		l.Payload, r.Ret, r.Rest, r.Times = payload, payload, payload, payload
		u.merge(t, l, r)
		u.same(t, modelOf(jid, l, r))
	}
}

func testLargeReturn(t *testing.T, u *subject) {
	jid := u.fresh(t)
	large, small := u.ret(jid, "large", 1), u.ret(jid, "small", 2)
	large.Ret = noise(8 << 20)
	l := u.publish(jid, 1)
	l.Payload = noise(1 << 20)
	u.merge(t, l, large)
	u.mergeOne(t, small)
	u.same(t, modelOf(jid, l, large, small))
	if got := u.returns(t, jid, tiers.ReturnQuery{MaxBytes: 1 << 20}); len(got) != 2 {
		t.Errorf("%d returns in pages of 1 MiB; want 2", len(got))
	}
	if got := u.mergeOne(t, u.resent(large, 3)); got != job.Repeat {
		t.Errorf("outcome of the large return again = %v; want %v", got, job.Repeat)
	}
}

// noise gives bytes that cannot be compressed.
func noise(n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(b) // it cannot fail
	return b
}

func testManyMinions(t *testing.T, u *subject) {
	n, inOneCall := 5_000, 500
	if long() {
		n = 60_000
	}
	jid := u.fresh(t)
	u.mergeOne(t, u.publish(jid, 1))
	var m = modelOf(jid, u.publish(jid, 1))
	var ids []job.Minion
	for i := range n {
		ids = append(ids, job.Minion(fmt.Sprintf("web%05d.example.com", i*7919%n)))
	}
	u.mergeOne(t, u.minions(jid, 1, ids...))
	m.merge(u.minions(jid, 1, ids...))
	for i := 0; i < n; i += inOneCall {
		var facts []job.Fact
		for j, id := range ids[i : i+inOneCall] {
			facts = append(facts, u.ret(jid, id, i+j+1))
			m.merge(facts[j])
		}
		u.merge(t, facts...)
	}
	u.same(t, m)
	sameReturns(t, u.returns(t, jid, tiers.ReturnQuery{MaxBytes: 64 << 10}), m.sorted())
	last := m.sorted()[n-1]
	sameReturns(t, u.returns(t, jid, tiers.ReturnQuery{Only: []job.Minion{last.Minion}}), []job.Return{last})
}
