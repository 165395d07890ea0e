package cluster

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"
)

func TestOneMasterSeesWhatTheOtherWrote(t *testing.T) {
	r, l := theRig(t), newLedger()
	for i := range 20 {
		jid, err := l.run(r.a)
		if err != nil {
			t.Fatal(err)
		}
		// Never read through b: it is there at once.
		if err := l.checkJob(r.b, jid); err != nil {
			t.Fatal(err)
		}
		if err := l.fire(r.a, fmt.Sprintf("cluster/seen/%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range r.masters() {
		eventually(t, patience, func() error { return l.check(m) })
	}
}

// A running job that b has in its cache: what a adds is seen within the staleness, a second by default.
func TestRunningJobOfTheOtherMasterIsFresh(t *testing.T) {
	const returns = 15
	r, l := theRig(t), newLedger()
	minions := make([]string, returns+1)
	for i := range minions {
		minions[i] = fmt.Sprintf("m%02d", i)
	}
	jid, err := l.publish(r.a, minions...)
	if err != nil {
		t.Fatal(err)
	}
	var took []time.Duration
	for _, minion := range minions[:returns] {
		if err := l.checkJob(r.b, jid); err != nil { // now it is in b's cache
			t.Fatal(err)
		}
		if err := l.answer(r.a, jid, minion); err != nil {
			t.Fatal(err)
		}
		took = append(took, eventually(t, 1500*time.Millisecond, func() error { return l.checkJob(r.b, jid) }))
	}
	slices.Sort(took)
	t.Logf("a return seen through the other master: median %v, longest of %d %v", took[returns/2], returns, took[returns-1])
}

func TestNoJIDIsMintedTwice(t *testing.T) {
	const clients, each = 8, 200
	r := theRig(t)
	errs := make([]error, 2*clients)
	var wait sync.WaitGroup
	for i := range errs {
		wait.Go(func() {
			for range each {
				if _, err := r.masters()[i%2].prepJID(); err != nil {
					errs[i] = err
					return
				}
			}
		})
	}
	wait.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}
