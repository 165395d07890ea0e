package job_test

import (
	"testing"
	"time"

	"saltern/job"
)

func TestSealed(t *testing.T) {
	load := &job.Load{JID: jid}
	ids := func(s ...job.Minion) []job.Minion { return s }
	for _, c := range []struct {
		name     string
		head     job.Head
		returned []job.Minion
		want     bool
	}{
		{"all returned, in any order", job.Head{Load: load, Minions: ids("a", "b")}, ids("b", "a"), true},
		{"and others too", job.Head{Load: load, Minions: ids("a", "b")}, ids("c", "b", "a"), true},
		{"one is missing", job.Head{Load: load, Minions: ids("a", "b")}, ids("a"), false},
		{"another in its place", job.Head{Load: load, Minions: ids("a", "b")}, ids("a", "c"), false},
		{"one twice", job.Head{Load: load, Minions: ids("a", "b")}, ids("a", "a"), false},
		{"no load yet", job.Head{Minions: ids("a")}, ids("a"), false},
		{"minions not known", job.Head{Load: load}, ids("a"), false},
	} {
		if got := c.head.Sealed(c.returned); got != c.want {
			t.Errorf("%s: Sealed = %v", c.name, got)
		}
	}
}

func TestState(t *testing.T) {
	now := noon
	for _, c := range []struct {
		name string
		s    job.Summary
		want job.State
	}{
		{"just published", job.Summary{Expected: 2, Missing: 2, Last: now}, job.Running},
		{"one is missing", job.Summary{Expected: 2, Missing: 1, Returned: 1, Last: now.Add(-14 * time.Minute)}, job.Running},
		{"one went away", job.Summary{Expected: 2, Missing: 1, Returned: 1, Last: now.Add(-15 * time.Minute)}, job.Incomplete},
		{"all returned", job.Summary{Expected: 2, Returned: 2, Last: now}, job.Complete},
		{"a failure", job.Summary{Expected: 2, Missing: 1, Returned: 1, Failed: 1, Last: now}, job.Failed},
		{"returns of unknown minions", job.Summary{Returned: 1, Last: now}, job.Complete},
		{"a load alone", job.Summary{Last: now.Add(-time.Hour)}, job.Incomplete},
		{"last fact of a clock ahead", job.Summary{Expected: 1, Missing: 1, Last: now.Add(time.Hour)}, job.Running},
	} {
		if got := c.s.State(now); got != c.want {
			t.Errorf("%s: %s; want %s", c.name, got, c.want)
		}
	}
}

func TestEventIDTime(t *testing.T) {
	id := job.EventID{0, 5, 0xaf, 0x31, 0x07, 0xa4, 0x00, 0x01, 9, 9}
	if got, want := id.Time(), time.UnixMicro(0x5af3107a40001).UTC(); !got.Equal(want) {
		t.Errorf("Time() = %v; want %v", got, want)
	}
}

// TestSizeGrows: sizes bound caches, so a payload has to be in them.
func TestSizeGrows(t *testing.T) {
	big := make([]byte, 5000)
	load := job.Load{JID: jid, Payload: big}
	for _, f := range []job.Fact{
		load, job.Return{JID: jid, Ret: big}, job.Return{JID: jid, Rest: big}, job.Event{Data: big},
		job.Minions{JID: jid, IDs: []job.Minion{job.Minion(big)}},
	} {
		if f.Size() < 5000 {
			t.Errorf("%T with 5000 bytes has size %d", f, f.Size())
		}
	}
	if h := (job.Head{JID: jid, Load: &load, Minions: []job.Minion{job.Minion(big)}}); h.Size() < 10_000 {
		t.Errorf("head with 10000 bytes has size %d", h.Size())
	}
}

// The kinds are on the backplane between proxies of two releases: a changed name is a changed format.
func TestFactKindAndStamp(t *testing.T) {
	for want, f := range map[string]job.Fact{
		"load": job.Load{JID: jid, Version: 7}, "minions": job.Minions{JID: jid, Version: 7},
		"return": job.Return{JID: jid, Version: 7}, "end": job.EndTime{JID: jid, Version: 7},
		"nocache": job.NoCache{JID: jid, Version: 7}, "event": job.Event{Version: 7},
	} {
		if f.Kind() != want || f.Stamp() != 7 {
			t.Errorf("%T: kind %q, stamp %d; want %q, 7", f, f.Kind(), f.Stamp(), want)
		}
	}
}
