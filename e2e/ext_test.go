package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// testExtJobCache gives the same commands to our master again, with ext_job_cache and master_job_cache left at
// local_cache, and compares with what local_cache gave. Events are filtered by tag (S84).
func testExtJobCache(t *testing.T, r *rig) {
	s := r.ours
	if err := s.RestartMaster(t.Context(), map[string]any{
		"master_job_cache":       nil,
		"ext_job_cache":          "saltern",
		"event_return_queue":     nil,
		"event_return_whitelist": []string{"salt/job/*/ret/*"},
		"event_return_blacklist": []string{"*/alpha"},
	}); err != nil {
		t.Fatal(err)
	}
	s.jids, s.answers = map[string]string{}, map[string]any{}
	giveCommands(t, s)
	askRunners(t, s)
	askListings(t, s)
	// Salt looks for the end time of an external cache in the master's own, and a minion does not give its returner
	// the outputter.
	for _, side := range r.sides() {
		for _, answer := range side.answers {
			without(answer, "EndTime", "out")
		}
	}
	r.compare(t)
	testFilteredEvents(t, r)
	testNotStored(t, s)
}

func testFilteredEvents(t *testing.T, r *rig) {
	jid := r.ours.jid("ping")
	eventually(t, func() error {
		tags, err := r.tags(t, "salt/job/"+jid+"/*")
		if want := "salt/job/" + jid + "/ret/beta"; err == nil && !slices.Equal(tags, []string{want}) {
			err = fmt.Errorf("the events kept of a job are %v, want %s alone", tags, want)
		}
		return err
	})
}

// testNotStored: with ext_job_cache Salt stores no return of salt-call and of runners, and neither do we.
func testNotStored(t *testing.T, s *side) {
	t.Helper()
	if _, err := s.call(t.Context(), "alpha", "test.echo", "not to be stored"); err != nil {
		t.Fatal(err)
	}
	s.must(t, "test.arg", "not to be stored")
	if listed := text(s.must(t, "jobs.list_jobs")); strings.Contains(listed, "not to be stored") {
		t.Errorf("a salt-call or a runner is in the external cache: %s", listed)
	}
}
