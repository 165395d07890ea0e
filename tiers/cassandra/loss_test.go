package cassandra_test

import (
	"encoding/binary"
	"testing"

	"saltern/job"
	"saltern/tiers"
)

// TestUnlearn: what a Cassandra lost is there again, lists and all, once the same facts are written again.
func TestUnlearn(t *testing.T) {
	o := ownOptions(t)
	s := open(t, o)
	jid := newJID()
	event := job.Event{
		Version: clock.Next(), Master: "m1", Tag: "salt/lost", Data: []byte{0x80},
	}
	binary.BigEndian.PutUint64(event.ID[:], uint64(event.Version.Time().UnixMicro()))
	facts := []job.Fact{publish(jid, 86400), minionsOf(jid, "a"), returnOf(jid, "a", []byte{0xc3}), event}
	merge(t, s, facts...)
	session := bare(t, o)
	for _, table := range []string{"heads", "returns", "jobs_by_day", "jobs_by_minion", "last_functions", "days", "events", "event_slots"} {
		if err := session.Query("TRUNCATE " + table).Exec(); err != nil {
			t.Fatal(err)
		}
	}
	s.Unlearn()
	outcomes := merge(t, s, facts...)
	if outcomes[2] != job.Repeat {
		t.Errorf("the return is %v; want a repeat", outcomes[2])
	}
	if h, err := s.Head(t.Context(), jid); err != nil || h.Load == nil || len(h.Minions) != 1 {
		t.Errorf("Head = %+v, %v", h, err)
	}
	if all, _ := allReturns(t, s, jid, tiers.ReturnQuery{}); len(all) != 1 {
		t.Errorf("%d returns; want 1", len(all))
	}
	for name, f := range map[string]tiers.Filter{"all": {}, "of the minion": {Minion: "a"}} {
		if page, err := s.List(t.Context(), f); err != nil || len(page.Jobs) != 1 {
			t.Errorf("list of %s: %d jobs, %v; want 1", name, len(page.Jobs), err)
		}
	}
	if page, err := s.Events(t.Context(), tiers.EventQuery{}); err != nil || len(page.Events) != 1 {
		t.Errorf("%d events, %v; want 1", len(page.Events), err)
	}
	if last, err := s.LastFunctions(t.Context(), ""); err != nil || len(last) != 1 {
		t.Errorf("%d minions, %v; want 1", len(last), err)
	}
}
