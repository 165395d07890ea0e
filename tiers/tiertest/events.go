package tiertest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"saltern/job"
	"saltern/tiers"
)

// event makes the nth event of a master: one a second.
func (u *subject) event(master string, n int) job.Event {
	e := job.Event{
		Version: u.version(n), Master: master, Tag: fmt.Sprintf("salt/job/%d/ret/a", n),
		Data: fmt.Appendf([]byte{0xa2}, "%02d", n),
	}
	at := u.base.Add(time.Duration(n) * time.Second)
	binary.BigEndian.PutUint64(e.ID[:8], uint64(at.UnixMicro()))
	e.ID[15] = byte(n)
	return e
}

// events reads all pages of a list of events.
func (u *subject) events(t tester, q tiers.EventQuery) []job.Event {
	t.Helper()
	var all []job.Event
	for range 10_000 {
		page, err := u.store.Events(ctx, q)
		if err != nil {
			t.Fatalf("Events(%+v) = %v", q, err)
		}
		if q.Limit > 0 && len(page.Events) > q.Limit {
			t.Fatalf("Events(%+v) gave %d events", q, len(page.Events))
		}
		all = append(all, page.Events...)
		if page.Next == "" {
			return all
		}
		q.Cursor = page.Next
	}
	t.Fatalf("Events(%+v) has no end", q)
	return nil
}

func (s *suite) testEvents(t *testing.T) {
	s.run(t, "queries", testEventQueries)
	s.run(t, "a resend is no second event", testEventResent)
	s.run(t, "odd events", testOddEvents)
	s.run(t, "foreign cursor is invalid", func(t *testing.T, u *subject) {
		u.mergeOne(t, u.event("m1", 1))
		for _, cursor := range []string{"x", "\x00", "////", "AAAA"} {
			if _, err := u.store.Events(ctx, tiers.EventQuery{Cursor: cursor}); !errors.Is(err, tiers.ErrInvalid) {
				t.Errorf("Events with cursor %q: %v; want ErrInvalid", cursor, err)
			}
		}
	})
}

func testEventQueries(t *testing.T, u *subject) {
	e := make([]job.Event, 6)
	for n := range e {
		e[n] = u.event([]string{"m1", "m2"}[n%2], n)
	}
	e[4].Tag, e[5].Tag = "salt/auth", "my/tag"
	for _, n := range []int{3, 0, 5, 1, 4, 2} {
		u.mergeOne(t, e[n])
	}
	// The jobs of a store are not changed by events about them.
	u.lists(t, tiers.Filter{})
	for _, c := range []struct {
		name string
		q    tiers.EventQuery
		want []int
	}{
		{"all", tiers.EventQuery{}, []int{5, 4, 3, 2, 1, 0}},
		{"oldest first", tiers.EventQuery{Oldest: true}, []int{0, 1, 2, 3, 4, 5}},
		{"tag", tiers.EventQuery{Tag: "salt/auth"}, []int{4}},
		{"tag as a pattern", tiers.EventQuery{Tag: "salt/job/*"}, []int{3, 2, 1, 0}},
		{"tag of nobody", tiers.EventQuery{Tag: "salt"}, nil},
		{"master", tiers.EventQuery{Master: "m2"}, []int{5, 3, 1}},
		{"from is included", tiers.EventQuery{From: e[3].ID.Time()}, []int{5, 4, 3}},
		{"to is not", tiers.EventQuery{To: e[3].ID.Time()}, []int{2, 1, 0}},
		{"all of it", tiers.EventQuery{
			From: e[1].ID.Time(), To: e[5].ID.Time(), Tag: "salt/*", Master: "m2", Oldest: true,
		}, []int{1, 3}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, limit := range []int{0, 1, 2} {
				c.q.Limit = limit
				var want []job.Event
				for _, n := range c.want {
					want = append(want, e[n])
				}
				if got := u.events(t, c.q); !reflect.DeepEqual(got, want) {
					t.Errorf("with limit %d: %d events\n%+v\nwant\n%+v", limit, len(got), got, want)
				}
			}
		})
	}
}

func testEventResent(t *testing.T, u *subject) {
	first := u.event("m1", 1)
	again := first
	again.Version = u.version(2)
	other := first
	other.Master = "m2"
	u.merge(t, first, u.event("m1", 2))
	u.merge(t, again, other)
	u.mergeOne(t, again)
	got := u.events(t, tiers.EventQuery{Master: "m1"})
	if len(got) != 2 || !reflect.DeepEqual(got[1], first) {
		t.Errorf("events of m1: %+v; want the first of the two once", got)
	}
	if got := u.events(t, tiers.EventQuery{}); len(got) != 3 {
		t.Errorf("%d events; want 3, as another master has events of its own", len(got))
	}
}

func testOddEvents(t *testing.T, u *subject) {
	var want []job.Event
	for n, name := range append(slices.Clone(oddNames), "") {
		e := u.event(name, n)
		e.Tag, e.Surrogates, e.Data = name, true, noise(n*100)
		want = append(want, e)
	}
	facts := make([]job.Fact, len(want))
	for i := range want {
		facts[i] = want[i]
	}
	u.merge(t, facts...)
	got := u.events(t, tiers.EventQuery{Oldest: true, Limit: 5})
	if len(got) != len(want) {
		t.Fatalf("%d events; want %d", len(got), len(want))
	}
	for i := range want {
		got[i].Data, want[i].Data = normalBytes(got[i].Data), normalBytes(want[i].Data)
		if !reflect.DeepEqual(got[i], want[i]) {
			t.Errorf("event %d: tag %q of %q, %d bytes; want %q of %q, %d bytes", i, got[i].Tag, got[i].Master,
				len(got[i].Data), want[i].Tag, want[i].Master, len(want[i].Data))
		}
	}
}
