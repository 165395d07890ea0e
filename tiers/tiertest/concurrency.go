package tiertest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"saltern/job"
	"saltern/tiers"
)

func (s *suite) testConcurrency(t *testing.T) {
	s.run(t, "many writers of one job", testManyWriters)
	s.run(t, "writers see what they wrote", testReadYourWrites)
	s.run(t, "one job is created once", testCreatedOnce)
	s.run(t, "a jid is reserved once", testReservedOnce)
}

// testManyWriters has each return written by two writers, as by two masters, while readers look on:
// what a reader has seen of a job does not vanish again.
func testManyWriters(t *testing.T, u *subject) {
	const writers, each = 8, 25
	jid := u.fresh(t)
	u.mergeOne(t, u.publish(jid, 1))
	var facts []job.Fact
	for i := range writers / 2 * each {
		id := job.Minion(fmt.Sprintf("m%03d", i*37%100))
		facts = append(facts, u.minions(jid, i+2, id), u.ret(jid, id, i+2))
	}
	var writing, reading sync.WaitGroup
	var done atomic.Bool
	for w := range writers {
		writing.Go(func() {
			part := facts[w/2*2*each:][:2*each]
			for i := range part {
				if w%2 == 1 {
					i = len(part) - 1 - i // the other way round
				}
				u.mergeOne(goTester{t}, part[i])
			}
		})
	}
	for range 2 {
		reading.Go(func() {
			seenReturns, seenMinions := 0, 0
			for !done.Load() {
				returns := len(u.returns(goTester{t}, jid, tiers.ReturnQuery{MaxBytes: 500}))
				minions := len(u.head(goTester{t}, jid).Minions)
				if returns < seenReturns || minions < seenMinions {
					t.Errorf("saw %d returns and %d minions, then %d and %d", seenReturns, seenMinions, returns, minions)
					return
				}
				seenReturns, seenMinions = returns, minions
			}
		})
	}
	writing.Wait()
	done.Store(true)
	reading.Wait()
	u.same(t, modelOf(jid, append(facts, u.publish(jid, 1))...))
}

// testReadYourWrites is S04: a read after an answered write gives what was written, at once.
func testReadYourWrites(t *testing.T, u *subject) {
	const writers, jobs = 8, 20
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			t := goTester{t}
			for range jobs {
				jid := u.jid()
				u.hold(t, jid)
				m := modelOf(jid)
				for _, f := range []job.Fact{
					u.load(jid, 1), u.publish(jid, 2), u.minions(jid, 3, "a", "b"), u.ret(jid, "a", 4), u.endTime(jid, 5),
				} {
					u.mergeOne(t, f)
					m.merge(f)
					u.same(t, m)
				}
			}
		})
	}
	wg.Wait()
}

func testCreatedOnce(t *testing.T, u *subject) {
	if u.store == nil {
		t.Skip("a cache does not know whether a fact is the first of its job")
	}
	const jobs, writers = 20, 8
	for range jobs {
		jid := u.jid()
		var created atomic.Int64
		var wg sync.WaitGroup
		for w := range writers {
			wg.Go(func() {
				if u.mergeOne(goTester{t}, u.ret(jid, job.Minion(fmt.Sprint("m", w)), w+1)) == job.Created {
					created.Add(1)
				}
			})
		}
		wg.Wait()
		if n := created.Load(); n != 1 && !(u.hints && n == 0) {
			t.Errorf("%d of %d writers created a job; want 1", n, writers)
		}
	}
}

func testReservedOnce(t *testing.T, u *subject) {
	r, can := u.Tier.(tiers.Reserver)
	if !can {
		t.Skip("the tier is no Reserver")
	}
	if _, err := r.Reserve(ctx, u.jid()); errors.Is(err, errors.ErrUnsupported) {
		t.Skip(err)
	}
	const jids, callers = 20, 8
	for range jids {
		jid := u.jid()
		var mine atomic.Int64
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				is, err := r.Reserve(ctx, jid)
				if err != nil {
					t.Errorf("Reserve(%q) = %v", jid, err)
				}
				if is {
					mine.Add(1)
				}
			})
		}
		wg.Wait()
		if n := mine.Load(); n != 1 {
			t.Errorf("%d of %d callers were told that jid %q is theirs; want 1", n, callers, jid)
		}
		// A reservation is no job.
		u.missing(t, jid)
	}
}

func (s *suite) testContext(t *testing.T) {
	// A tier may do what is asked of it in spite of a context that has ended, or say so.
	s.run(t, "ended context", func(t *testing.T, u *subject) {
		ended, cancel := context.WithCancel(ctx)
		cancel()
		jid := u.fresh(t)
		before := u.publish(jid, 1)
		u.mergeOne(t, before)
		if h, err := u.Head(ended, jid); !endedOr(err, h.Load != nil) {
			t.Errorf("Head = %s, %v", showHead(h), err)
		}
		if page, err := u.Returns(ended, jid, tiers.ReturnQuery{}); !endedOr(err, len(page.Returns) == 0) {
			t.Errorf("Returns = %d returns, %v", len(page.Returns), err)
		}
		after := u.ret(jid, "a", 2)
		_, err := u.Merge(ended, []job.Fact{after})
		if !endedOr(err, true) {
			t.Errorf("Merge = %v", err)
		}
		if err == nil {
			u.same(t, modelOf(jid, before, after))
		}
		// Whatever became of it, it can be tried again.
		u.mergeOne(t, after)
		u.same(t, modelOf(jid, before, after))
	})
}

// endedOr says whether the error is that of an ended context, or there is none and the answer right.
func endedOr(err error, right bool) bool {
	return err == nil && right || errors.Is(err, context.Canceled)
}
