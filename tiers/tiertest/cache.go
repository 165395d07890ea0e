package tiertest

import (
	"errors"
	"testing"
	"time"

	"saltern/job"
	"saltern/tiers"
)

func (s *suite) testCache(t *testing.T) {
	s.run(t, "facts of a job that is not held", func(t *testing.T, u *subject) {
		jid := u.jid()
		for i, o := range u.merge(t, u.loads(jid)...) {
			if o != job.Stored {
				t.Errorf("outcome %d = %v; want %v", i, o, job.Stored)
			}
		}
		// A part of a job must not pass for the whole.
		u.missing(t, jid)
	})
	s.run(t, "head without returns", testHeadAlone)
	s.run(t, "fill merges", testFillMerges)
	s.run(t, "fill with returns", func(t *testing.T, u *subject) {
		jid := u.jid()
		m := modelOf(jid, append(u.loads(jid), u.answers(jid)...)...)
		u.fill(t, tiers.Snapshot{Head: m.head, Returns: m.sorted(), HasReturns: true})
		u.same(t, m)
	})
	s.run(t, "evict", func(t *testing.T, u *subject) {
		jid, other := u.fresh(t), u.fresh(t)
		for _, id := range []job.JID{jid, u.jid(), jid} {
			if err := u.filler.Evict(ctx, id); err != nil {
				t.Fatalf("Evict(%q) = %v", id, err)
			}
		}
		u.missing(t, jid)
		u.same(t, modelOf(other))
		u.mergeOne(t, u.publish(jid, 1))
		u.missing(t, jid)
		u.hold(t, jid)
		u.same(t, modelOf(jid))
	})
	s.run(t, "S69 absence", testAbsence)
	s.run(t, "forget all", testForgetAll)
}

func testHeadAlone(t *testing.T, u *subject) {
	jid := u.jid()
	publish := u.publish(jid, 1)
	u.fill(t, tiers.Snapshot{Head: modelOf(jid, publish).head})
	u.merge(t, u.minions(jid, 2, "a"), u.ret(jid, "a", 2))
	want := modelOf(jid, publish, u.minions(jid, 2, "a")).head
	if got := u.head(t, jid); showHead(got) != showHead(want) {
		t.Errorf("Head(%q) = %s; want %s", jid, showHead(got), showHead(want))
	}
	if page, err := u.Returns(ctx, jid, tiers.ReturnQuery{}); !errors.Is(err, tiers.ErrNotFound) {
		t.Errorf("Returns(%q) = %d returns, %v; want ErrNotFound", jid, len(page.Returns), err)
	}
}

// testFillMerges is S05: a fill brings what was read some time ago.
func testFillMerges(t *testing.T, u *subject) {
	jid := u.fresh(t)
	facts := append(u.loads(jid), u.answers(jid)...)
	u.merge(t, facts...)
	old := modelOf(jid, u.returnLoad(jid, 1), u.minions(jid, 1, "d"), u.ret(jid, "a", 9), u.ret(jid, "z", 9))
	u.fill(t, tiers.Snapshot{Head: old.head, Returns: old.sorted(), HasReturns: true})
	want := modelOf(jid, facts...)
	want.head = job.MergeHead(want.head, old.head)
	for _, r := range old.returns {
		want.merge(r)
	}
	u.same(t, want)
	// A head alone takes no returns away.
	u.fill(t, tiers.Snapshot{Head: old.head})
	u.same(t, want)
}

func testAbsence(t *testing.T, u *subject) {
	absent := func(jid job.JID) error {
		_, err := u.Head(ctx, jid)
		_, err2 := u.Returns(ctx, jid, tiers.ReturnQuery{})
		if errors.Is(err, tiers.ErrAbsent) != errors.Is(err2, tiers.ErrAbsent) {
			t.Errorf("Head = %v, Returns = %v; want the same of both", err, err2)
		}
		return err
	}
	jid := u.jid()
	u.fill(t, tiers.Snapshot{Head: job.Head{JID: jid}, Absent: true, TTL: time.Hour})
	if err := absent(jid); !errors.Is(err, tiers.ErrAbsent) {
		t.Fatalf("a job filled as absent: %v; want ErrAbsent", err)
	}
	// Any fact ends it; the job is then not held, as it is not known as a whole.
	u.mergeOne(t, u.ret(jid, "a", 1))
	u.missing(t, jid)

	jid = u.jid()
	u.fill(t, tiers.Snapshot{Head: job.Head{JID: jid}, Absent: true, TTL: time.Hour})
	u.fill(t, tiers.Snapshot{Head: job.Head{JID: jid}, HasReturns: true})
	u.same(t, modelOf(jid))

	// It was read before the fact was written: the fact is right.
	u.mergeOne(t, u.publish(jid, 1))
	u.fill(t, tiers.Snapshot{Head: job.Head{JID: jid}, Absent: true, TTL: time.Hour})
	u.same(t, modelOf(jid, u.publish(jid, 1)))
}

func testForgetAll(t *testing.T, u *subject) {
	f, can := u.Tier.(tiers.Forgetter)
	if !can {
		t.Skip("the tier is no Forgetter")
	}
	held, absent := u.fresh(t), u.jid()
	u.mergeOne(t, u.publish(held, 1))
	u.fill(t, tiers.Snapshot{Head: job.Head{JID: absent}, Absent: true, TTL: time.Hour})
	err := f.ForgetAll(ctx)
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatalf("ForgetAll = %v", err)
	}
	u.missing(t, held)
	u.missing(t, absent)
	u.mergeOne(t, u.ret(held, "a", 2))
	u.missing(t, held)
	u.hold(t, held)
	u.same(t, modelOf(held))
}
