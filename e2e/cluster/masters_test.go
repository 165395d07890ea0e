package cluster

import (
	"errors"
	"fmt"
	"os"
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
	jobs := 1
	if os.Getenv("SALTERN_LONG") != "" {
		jobs = 40
	}
	r, l := theRig(t), newLedger()
	var took []time.Duration
	for range jobs {
		jid, err := l.publish(r.a, minionNames(returns+1)...)
		if err != nil {
			t.Fatal(err)
		}
		for _, minion := range minionNames(returns) {
			if err := l.checkJob(r.b, jid); err != nil { // now it is in b's cache
				t.Fatal(err)
			}
			if err := l.answer(r.a, jid, minion); err != nil {
				t.Fatal(err)
			}
			took = append(took, eventuallyEach(t, time.Millisecond, 1500*time.Millisecond,
				func() error { return l.checkJob(r.b, jid) }))
		}
	}
	slices.Sort(took)
	t.Logf("a return seen through the other master: median %v, p99 %v, longest of %d %v",
		short(took[len(took)/2]), short(took[len(took)*99/100]), len(took), short(took[len(took)-1]))
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
