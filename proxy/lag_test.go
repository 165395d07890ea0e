package proxy

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"saltern/job"
	"saltern/tiers"
)

// forgetful is a shared tier that counts what it is made to forget.
type forgetful struct {
	tiers.Tier
	err     error
	evicted []job.JID
	all     int
	during  func() // called while it forgets
}

func (f *forgetful) Fill(context.Context, tiers.Snapshot) error { return f.err }

func (f *forgetful) Evict(_ context.Context, jid job.JID) error {
	if f.err == nil {
		f.evicted = append(f.evicted, jid)
	}
	return f.err
}

func (f *forgetful) ForgetAll(context.Context) error {
	if f.err != nil {
		return f.err
	}
	f.all++
	if f.during != nil {
		f.during()
	}
	return nil
}

func miss(l *lag, jid job.JID) {
	facts := []job.Fact{job.EndTime{JID: jid}}
	l.begin(facts)
	l.end(facts, false)
}

func TestRepairForgetsWhatWasMissed(t *testing.T) {
	var dirty []bool
	l := newLag(func(d bool) { dirty = append(dirty, d) })
	miss(l, "a")
	miss(l, "b")
	tier := &forgetful{err: errors.New("away")}
	l.repair(t.Context(), tier)
	if !l.behind("a") || !l.behind("b") || l.behind("c") {
		t.Error("a tier that is away was repaired")
	}
	tier.err = nil
	l.repair(t.Context(), tier)
	if l.behind("a") || l.behind("b") || len(tier.evicted) != 2 || tier.all != 0 {
		t.Errorf("evicted %v, all %d times", tier.evicted, tier.all)
	}
	if fmt.Sprint(dirty) != "[true false]" {
		t.Errorf("noted as dirty: %v", dirty)
	}
}

func TestRepairForgetsEverythingAfterALongOutage(t *testing.T) {
	clean := false
	l := newLag(func(d bool) { clean = !d })
	for i := range maxMissed + 1 {
		miss(l, job.JID(fmt.Sprint(i)))
	}
	if !l.behind("never written") {
		t.Fatal("it is not known what the tier has, and it is asked")
	}
	// What is missed while everything is being forgotten may have been filled in again before.
	tier := &forgetful{}
	tier.during = func() {
		tier.during = nil
		miss(l, "late")
	}
	l.repair(t.Context(), tier)
	if !l.behind("late") || clean {
		t.Error("a write that was missed during the repair was forgotten")
	}
	l.repair(t.Context(), tier)
	if l.behind("late") || l.behind("0") || tier.all != 2 || !clean {
		t.Errorf("forgot everything %d times, clean %v", tier.all, clean)
	}
}

// After a crash nobody knows which of the latest writes a shared tier got.
func TestSuspectsAreNotAskedFor(t *testing.T) {
	l := newLag(func(bool) {})
	l.suspect([]job.JID{"a"}, false)
	if !l.behind("a") || l.behind("b") {
		t.Error("suspects are asked for, or others are not")
	}
	all := newLag(func(bool) {})
	all.suspect(nil, true)
	if !all.behind("b") {
		t.Error("a tier that missed it is not known what is asked")
	}
	tier := &forgetful{}
	all.repair(t.Context(), tier)
	if all.behind("b") || tier.all != 1 {
		t.Error("not repaired")
	}
}

// Two proxies of different numbers never mint the same jid, whatever their clocks say.
func TestJIDsOfSeveralProxies(t *testing.T) {
	now := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	seen := map[job.JID]int{}
	for node := range 4 {
		r := reservation{node: node, nodes: 4}
		last := time.Time{}
		for range 1000 {
			got := r.next(now)
			if !got.After(last) {
				t.Fatalf("%v after %v", got, last)
			}
			last = got
			seen[job.NewJID(got)]++
		}
	}
	if len(seen) != 4000 {
		t.Errorf("%d of 4000 jids are different", len(seen))
	}
}

func TestMintedJIDIsTakenOnce(t *testing.T) {
	var m minted
	for i := range maxMinted + 10 {
		m.add(job.JID(fmt.Sprint(i)))
	}
	if m.take("0") || !m.take("10") || m.take("10") || m.take("other") {
		t.Error("minted jids are not told from others")
	}
	if len(m.jids) > maxMinted || len(m.order) > maxMinted {
		t.Errorf("%d jids are remembered", len(m.jids))
	}
}
