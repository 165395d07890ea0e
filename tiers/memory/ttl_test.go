package memory_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"saltern/job"
	"saltern/tiers"
	"saltern/tiers/memory"
)

// clock is a clock that is moved by hand.
type clock struct{ now time.Time }

func (c *clock) Now() time.Time          { return c.now }
func (c *clock) advance(d time.Duration) { c.now = c.now.Add(d) }

// S70: a job is held for its TTL and no longer, in the window as in ristretto; without one for as long
// as there is room.
func TestTTL(t *testing.T) {
	at := &clock{born}
	c := open(t, memory.Options{MaxBytes: 1 << 20, Now: at.Now})
	fill(t, c, publish(jidAt(0)), time.Minute)
	fill(t, c, publish(jidAt(1)), 0)
	at.advance(time.Minute - 1)
	if !has(t, c, jidAt(0)) {
		t.Error("a job is gone before its TTL has passed")
	}
	at.advance(1)
	if has(t, c, jidAt(0)) || returned(t, c, jidAt(0)) != -1 {
		t.Error("a job is held when its TTL has passed")
	}
	at.advance(1000 * time.Hour)
	if !has(t, c, jidAt(1)) {
		t.Error("a job without a TTL is gone")
	}
	if s := c.Stats(); s.Expired != 1 || s.Entries != 1 {
		t.Errorf("%+v; want 1 expired and 1 entry", s)
	}
}

func TestTTLOfRefill(t *testing.T) {
	for _, c := range []struct {
		name       string
		ttl        time.Duration
		hasReturns bool
		held       bool
	}{
		{"a job read again is younger", time.Hour, true, true},
		{"one that may be kept less long is not", time.Second, true, false},
		{"a head read again makes returns no younger", time.Hour, false, false},
		{"not even without a TTL", 0, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			at := &clock{born}
			cache := open(t, memory.Options{Now: at.Now})
			fill(t, cache, publish(jidAt(0)), time.Minute)
			s := tiers.Snapshot{Head: job.Head{JID: jidAt(0)}, HasReturns: c.hasReturns, TTL: c.ttl}
			if err := cache.Fill(context.Background(), s); err != nil {
				t.Fatal(err)
			}
			at.advance(time.Minute)
			if got := has(t, cache, jidAt(0)); got != c.held {
				t.Errorf("held = %v; want %v", got, c.held)
			}
		})
	}
}

// S71: a job that may not be kept is not, and what was held of it is forgotten.
func TestNegativeTTL(t *testing.T) {
	c := open(t, memory.Options{})
	fill(t, c, publish(jidAt(0)), 0)
	fill(t, c, publish(jidAt(0)), -1)
	if has(t, c, jidAt(0)) {
		t.Error("the older job is still held")
	}
}

// A fact of a job whose TTL has passed does not bring it back.
func TestMergeIntoExpired(t *testing.T) {
	at := &clock{born}
	c := open(t, memory.Options{Now: at.Now})
	fill(t, c, publish(jidAt(0)), time.Minute)
	at.advance(time.Hour)
	merge(t, c, ret(jidAt(0), 1))
	if has(t, c, jidAt(0)) {
		t.Error("it is held")
	}
	fill(t, c, publish(jidAt(0)), time.Minute)
	if got := returned(t, c, jidAt(0)); got != 0 {
		t.Errorf("%d returns; want those of the snapshot alone", got)
	}
}

// S69: absence is known for its TTL, and ended by any fact.
func TestAbsence(t *testing.T) {
	at := &clock{born}
	c := open(t, memory.Options{Now: at.Now})
	absent := func(jid job.JID) bool {
		_, err := c.Head(context.Background(), jid)
		return errors.Is(err, tiers.ErrAbsent)
	}
	for i := range 2 {
		s := tiers.Snapshot{Head: job.Head{JID: jidAt(i)}, Absent: true, TTL: time.Second}
		if err := c.Fill(context.Background(), s); err != nil {
			t.Fatal(err)
		}
	}
	if !absent(jidAt(0)) || !absent(jidAt(1)) {
		t.Fatal("jobs are not known to be absent")
	}
	merge(t, c, publish(jidAt(0)))
	at.advance(time.Second - 1)
	if absent(jidAt(0)) || !absent(jidAt(1)) {
		t.Error("want absence ended by a fact, and by nothing else yet")
	}
	at.advance(1)
	if absent(jidAt(1)) {
		t.Error("absence is known for longer than its TTL")
	}
}

// Jobs whose TTL has passed and that nobody reads make room while others are filled.
func TestExpiredAreSwept(t *testing.T) {
	at := &clock{born}
	c := open(t, memory.Options{Now: at.Now})
	const n = 1000
	for i := range n {
		fill(t, c, publish(jidAt(i)), time.Minute)
	}
	at.advance(time.Hour)
	for i := range 4 * n {
		fill(t, c, publish(jidAt(n+i)), 0)
	}
	if s := c.Stats(); s.Expired < n*9/10 {
		t.Errorf("%+v; want nearly all of %d swept", s, n)
	}
}

func TestOptions(t *testing.T) {
	for _, o := range []memory.Options{
		{MaxBytes: -1}, {WindowShare: -0.1}, {WindowShare: 0.01}, {WindowShare: 0.99}, {WindowShare: 25},
	} {
		if c, err := memory.New(o); err == nil {
			t.Errorf("New(%+v) is no error", o)
			_ = c.Close()
		}
	}
	for _, o := range []memory.Options{
		{}, {MaxBytes: 1}, {MaxBytes: 4096, WindowShare: 0.95}, {WindowShare: 0.05},
	} {
		c, err := memory.New(o)
		if err != nil {
			t.Errorf("New(%+v) = %v", o, err)
			continue
		}
		fill(t, c, publish(jidAt(0)), 0)
		has(t, c, jidAt(0))
		if err := c.Close(); err != nil {
			t.Errorf("Close = %v", err)
		}
	}
}
