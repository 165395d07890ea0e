package journal_test

import (
	"fmt"
	"testing"

	"saltern/job"
	"saltern/proxy/journal"
)

// What waited mixed goes job by job: the store then writes the returns of one job at once.
func TestReplayJoinsTheReturnsOfAJob(t *testing.T) {
	under := newRemote(t)
	under.set(errAway)
	s := open(t, journal.Options{Under: under})
	jids := []job.JID{newJID(), newJID(), newJID(), newJID()}
	const each = 16
	for m := range each {
		for _, jid := range jids {
			merge(t, s, ret(jid, job.Minion(fmt.Sprintf("m%02d", m)), byte(m)))
		}
	}
	under.set(nil)
	drained(t, s)
	under.mu.Lock()
	defer under.mu.Unlock()
	for _, facts := range under.sent {
		jobs := map[job.JID]bool{}
		for _, f := range facts {
			jobs[f.Job()] = true
		}
		// A batch may have the end of one job and the begin of the next.
		if len(jobs) > 2 {
			t.Errorf("a batch of %d facts is of %d jobs", len(facts), len(jobs))
		}
	}
	if n := len(under.sent); n > 2*len(jids) {
		t.Errorf("%d facts of %d jobs were sent in %d batches", each*len(jids), len(jids), n)
	}
}
