package cluster

import (
	"errors"
	"fmt"
	"testing"
)

// The daemon dies while Cassandra hangs and Redis is gone: what it acknowledged is on this machine's disk alone.
func TestDaemonKilledInAnOutage(t *testing.T) {
	r, l := theRig(t), newLedger()
	if err := errors.Join(r.cassandra.Hang(), r.redis.Kill()); err != nil {
		t.Fatal(err)
	}
	up := func() error { return errors.Join(r.cassandra.Continue(), r.redis.Start(t.Context())) }
	var before []string
	func() {
		defer func() {
			if err := up(); err != nil {
				t.Fatal(err)
			}
		}()
		for i := range 10 {
			jid, err := l.publish(r.a, "m1", "m2")
			if err != nil {
				t.Error(err)
				continue
			}
			before = append(before, jid)
			if err := errors.Join(l.answer(r.a, jid, "m1"), l.fire(r.a, fmt.Sprintf("cluster/kill/%d", i))); err != nil {
				t.Error(err)
			}
		}
		if err := r.a.kill(); err != nil {
			t.Fatal(err)
		}
		if err := r.bed.Start(t.Context(), r.a.daemon); err != nil {
			t.Fatal(err)
		}
		for _, jid := range before {
			if err := l.checkJob(r.a, jid); err != nil {
				t.Error(err)
			}
			if err := l.answer(r.a, jid, "m2"); err != nil {
				t.Error(err)
			}
		}
	}()
	r.settle(t)
	for _, m := range r.masters() {
		if err := l.check(m); err != nil {
			t.Error(err)
		}
	}
}
