package tiertest

import (
	"testing"

	"saltern/job"
	"saltern/tiers"
)

func (s *suite) testStore(t *testing.T) {
	s.run(t, "outcomes of first facts", testFirstFacts)
}

// testFirstFacts: what makes a job is Created, as it lets the cache hold the job as a whole.
func testFirstFacts(t *testing.T, u *subject) {
	jid := u.jid()
	outcomes := u.merge(t, u.publish(jid, 1), u.minions(jid, 1, "a"))
	if outcomes[0] != job.Created {
		t.Errorf("outcome of the first fact = %v; want %v", outcomes[0], job.Created)
	}
	for _, f := range append(u.loads(jid), u.minions(jid, 9, "z")) {
		if got := u.mergeOne(t, f); got == job.Created {
			t.Errorf("outcome of a later %T = %v", f, got)
		}
	}
	if got := u.mergeOne(t, u.ret(jid, "a", 9)); got != job.Stored {
		t.Errorf("outcome of the first return = %v; want %v", got, job.Stored)
	}
	a, b := u.jid(), u.jid()
	outcomes = u.merge(t, u.publish(a, 1), u.publish(b, 1))
	if outcomes[0] != job.Created || outcomes[1] != job.Created {
		t.Errorf("outcomes of the first facts of two jobs = %v; want %v twice", outcomes, job.Created)
	}
}

// testReopen: all that was acknowledged is there after the tier was opened again.
func (s *suite) testReopen(t *testing.T) {
	s.run(t, "everything is still there", func(t *testing.T, u *subject) {
		jid := u.fresh(t)
		facts := append(u.loads(jid), u.answers(jid)...)
		event := u.event("m1", 1)
		u.merge(t, append(facts, event)...)
		saved := u.jid()
		u.mergeOne(t, job.NoCache{JID: saved, Version: u.version(1), Keep: 86400})
		if u.store != nil {
			if err := u.store.SaveRegister(ctx, "m1", []byte{1}); err != nil {
				t.Fatalf("SaveRegister = %v", err)
			}
		}
		for range 2 {
			u.use(s.reopen(t, u.Tier))
			u.same(t, modelOf(jid, facts...))
			if u.store == nil {
				continue
			}
			u.lists(t, tiers.Filter{}, saved, jid)
			u.lastFunctions(t, "", "a", "b")
			if got := u.events(t, tiers.EventQuery{}); len(got) != 1 || got[0].ID != event.ID {
				t.Errorf("%d events; want 1", len(got))
			}
			if data, err := u.store.LoadRegister(ctx, "m1"); err != nil || string(data) != "\x01" {
				t.Errorf("LoadRegister = %x, %v; want 01", data, err)
			}
			if got := u.mergeOne(t, u.ret(saved, "a", 2)); got != job.Dropped && !(u.hints && got == job.Stored) {
				t.Errorf("outcome of a return to a nocache job = %v; want %v", got, job.Dropped)
			}
			if got := u.mergeOne(t, facts[0]); got == job.Created {
				t.Error("a job that was there was created again")
			}
		}
	})
}
