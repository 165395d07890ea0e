package e2e

import (
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// testLoadStays: returns do not replace the load that was published, and the user of sudo is kept (S01, S07, S40).
func testLoadStays(t *testing.T, r *rig) {
	env := []string{}
	user := "root"
	if os.Getuid() == 0 {
		env, user = append(env, "SUDO_USER=alice"), "sudo_alice"
	}
	for _, s := range r.sides() {
		out, err := s.RunEnv(t.Context(), env, "salt", "--show-jid", "--out=json", "al*", "test.arg", "x", "refresh=true")
		if err != nil {
			t.Fatal(err)
		}
		jid := shownJid.FindStringSubmatch(out.Stdout)
		if jid == nil {
			t.Fatalf("salt shows no jid: %q %q", out.Stdout, out.Stderr)
		}
		s.label("", jid[1])
		row := dig(s.must(t, "jobs.list_jobs"), jid[1])
		s.note("S01 list_jobs", row)
		s.note("S01 list_job", dig(s.must(t, "jobs.list_job", jid[1]), "Minions"))
		if got := dig(row, "Target"); got != "al*" {
			t.Errorf("%s: Target is %v", s.name, got)
		}
		if got := dig(row, "User"); os.Getuid() == 0 && got != user {
			t.Errorf("%s: User is %v, want %s", s.name, got, user)
		}
	}
	r.compare(t)
}

// testOddValues: what JSON cannot hold comes back as local_cache gives it (S02).
func testOddValues(t *testing.T, r *rig) {
	printed := map[string]string{}
	for _, s := range r.sides() {
		if _, err := s.salt(t.Context(), "", "alpha", "odd.values"); err != nil {
			t.Fatal(err)
		}
		out, err := s.Run(t.Context(), "salt-run", "--out=raw", "jobs.lookup_jid", s.jid(""))
		if err != nil {
			t.Fatal(err)
		}
		printed[s.name] = out.Stdout
	}
	if !strings.Contains(printed["ours"], `b'0\x82\x01\n\x02\x82\x01\x01\x00'`) || printed["ours"] != printed["stock"] {
		t.Errorf("odd values differ:\n%s%s", printed["ours"], printed["stock"])
	}
	view, code, err := r.view(t.Context(), "/v1/jobs/"+r.ours.jid(""), nil)
	if err != nil || code != 200 {
		t.Fatalf("%d, %v", code, err)
	}
	if !strings.Contains(text(view), "MIIBCgKCAQEA") {
		t.Errorf("the HTTP view has no base64 of the bytes: %s", text(view))
	}
}

// testEvents: all events of a job are there in their order, and an event sent twice is there twice (S06, S84).
func testEvents(t *testing.T, r *rig) {
	jid := r.ours.jid("ping")
	eventually(t, func() error {
		r.ours.ping(t) // its events push those that the master collects
		tags, err := r.tags(t, "salt/job/"+jid+"/*")
		if err != nil {
			return err
		}
		for _, end := range []string{"new", "ret/alpha", "ret/beta"} {
			if n := count(tags, "salt/job/"+jid+"/"+end); n != 1 {
				return fmt.Errorf("the event %s of a job is there %d times: %v", end, n, tags)
			}
		}
		return nil
	})
	for range 2 {
		if _, err := r.ours.call(t.Context(), "alpha", "event.send", "it's/sent/twice", `{"a": [1, 2]}`); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, func() error {
		r.ours.ping(t)
		tags, err := r.tags(t, "it's/sent/*")
		if n := count(tags, "it's/sent/twice"); err == nil && n != 2 {
			err = fmt.Errorf("it was sent twice and is there %d times", n)
		}
		return err
	})
}

// tags are those of the stored events that match, oldest first.
func (r *rig) tags(t *testing.T, pattern string) ([]string, error) {
	view, code, err := r.view(t.Context(), "/v1/events", url.Values{"tag": {pattern}, "limit": {"1000"}})
	if err != nil || code != 200 {
		return nil, fmt.Errorf("/v1/events: %d, %w", code, err)
	}
	rows, _ := view["events"].([]any)
	var tags []string
	for _, row := range slices.Backward(rows) {
		if master, _ := dig(row, "master").(string); !strings.HasSuffix(master, "_master") {
			return nil, fmt.Errorf("an event has the master %q", master)
		}
		tags = append(tags, fmt.Sprint(dig(row, "tag")))
	}
	return tags, nil
}

func count(all []string, one string) int {
	n := 0
	for _, s := range all {
		if s == one {
			n++
		}
	}
	return n
}

// testMissingMinions: a minion that has not answered is known, and its late return counts (S08).
func testMissingMinions(t *testing.T, r *rig) {
	beta := r.ours.Minion("beta")
	if err := beta.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = beta.Signal(syscall.SIGCONT) }()
	if _, err := r.ours.salt(t.Context(), "", "--async", "*", "test.ping"); err != nil {
		t.Fatal(err)
	}
	jid := r.ours.jid("")
	eventually(t, func() error {
		if got := text(r.ours.must(t, "jobs.lookup_jid", jid, "missing=True")); got != `{"alpha":true,"beta":"Minion did not return"}` {
			return fmt.Errorf("lookup_jid missing=True gives %s", got)
		}
		return nil
	})
	if got := text(dig(r.ours.must(t, "jobs.list_job", jid), "Minions")); got != `["alpha","beta"]` {
		t.Errorf("Minions is %s", got)
	}
	if got := text(r.ours.must(t, "jobs.exit_success", jid)); got != `{"alpha":true,"beta":false}` {
		t.Errorf("exit_success gives %s", got)
	}
	if err := beta.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if got := text(r.ours.must(t, "jobs.exit_success", jid)); got != `{"alpha":true,"beta":true}` {
			return fmt.Errorf("after the late return exit_success gives %s", got)
		}
		return nil
	})
}

// testSentAgain: returns that a minion sends again and again, because the master does not answer, are stored once, and
// nobody is accused of a replay attack (S24).
func testSentAgain(t *testing.T, r *rig) {
	if os.Getenv("SALTERN_LONG") == "" {
		t.Skip("stops a master for 70 s; SALTERN_LONG=1 runs it")
	}
	if _, err := r.ours.salt(t.Context(), "", "--async", "*", "odd.slow", "4"); err != nil {
		t.Fatal(err)
	}
	jid := r.ours.jid("")
	if err := r.ours.Master().Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	time.Sleep(70 * time.Second)
	if err := r.ours.Master().Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if got := text(r.ours.must(t, "jobs.lookup_jid", jid)); got != `{"alpha":true,"beta":true}` {
			return fmt.Errorf("after the master was stopped lookup_jid gives %s", got)
		}
		return nil
	})
	log, err := os.ReadFile(r.ours.MasterLog())
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(strings.ToLower(string(log)), "replay") {
		t.Errorf("the master's log speaks of a replay:\n%s", problems(string(log)))
	}
}

// testLists: searches of jobs.list_jobs find the same jobs as with local_cache (S41, S42, S63).
func testLists(t *testing.T, r *rig) {
	for _, search := range [][]string{
		{"search_function=test.a*,cmd.*", "search_target=al*"},
		{`search_metadata={"task_id": "t1"}`},
		{"search_function=state.apply", "start_time=2020, Jan 01 00:00"},
		{"end_time=2020, Jan 01 00:00"},
	} {
		each(t, r.sides(), func(s *side) error {
			answer, err := s.ask(t.Context(), append([]string{"jobs.list_jobs"}, search...)...)
			if err != nil {
				return err
			}
			found := map[string]any{}
			for _, label := range s.labels() {
				if row := dig(answer, s.jid(label)); row != nil {
					found[label] = row
				}
			}
			s.note("list_jobs "+strings.Join(search, " "), found)
			return nil
		})
	}
	if got := keys(r.ours.answers[`list_jobs search_metadata={"task_id": "t1"}`]); !slices.Equal(got, []string{"metadata"}) {
		t.Errorf("search_metadata finds %v", got)
	}
	r.compare(t)
}

// testSeveralFunctions: a job of several functions has all results, and does not spoil searches of the list, as it does
// in local_cache, where its function is a list (S41).
func testSeveralFunctions(t *testing.T, r *rig) {
	each(t, r.sides(), func(s *side) error {
		out, err := s.salt(t.Context(), "several functions", "alpha", "test.ping,test.echo", ",hello")
		if err != nil {
			return err
		}
		printed, err := documents(out.Stdout)
		if err != nil {
			return err
		}
		s.note("salt with several functions", printed)
		answer, err := s.ask(t.Context(), "jobs.lookup_jid", s.jid("several functions"))
		s.note("lookup_jid of several functions", answer)
		return err
	})
	r.compare(t)
	found := dig(r.ours.must(t, "jobs.list_jobs", "search_function=test.*"), r.ours.jid("several functions"))
	if got := dig(found, "Function"); got != "test.ping,test.echo" {
		t.Errorf("a search finds the job of several functions as %s", text(found))
	}
}

// testReq: stand-alone returns get a job each, from a minion and without a master (S48, S85).
func testReq(t *testing.T, r *rig) {
	s := r.ours
	jids := func() []any {
		t.Helper()
		answer, err := s.call(t.Context(), "alpha", "--local", "ret.get_jids", "saltern")
		if err != nil {
			t.Fatal(err)
		}
		list, _ := answer.([]any)
		return list
	}
	before := jids()
	for _, word := range []string{"one", "two"} {
		if _, err := s.call(t.Context(), "alpha", "--local", "--return=saltern", "test.echo", word); err != nil {
			t.Fatal(err)
		}
	}
	var words []string
	for _, jid := range jids() {
		if slices.Contains(before, jid) {
			continue
		}
		answer := s.must(t, "jobs.list_job", jid.(string))
		words = append(words, fmt.Sprint(dig(answer, "Result", "alpha", "return")))
		if got := dig(answer, "Target"); got != "alpha" {
			t.Errorf("the job of a minion alone has the target %v", got)
		}
	}
	slices.Sort(words)
	if !slices.Equal(words, []string{"one", "two"}) {
		t.Errorf("two commands with --return left the jobs %v", words)
	}
	if _, err := s.salt(t.Context(), "", "alpha", "test.echo", "by the minion", "--return=saltern"); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		answer := s.must(t, "jobs.list_job", s.jid(""))
		if got := text(plain(dig(answer, "Result"))); got != `{"alpha":{"retcode":0,"return":"by the minion","success":true}}` {
			return fmt.Errorf("salt --return leaves %s", got)
		}
		if got := dig(answer, "User"); got == nil || dig(answer, "Error") != nil {
			return fmt.Errorf("salt --return leaves %s", text(answer))
		}
		return nil
	})
}

// testRunnerJobs: runners and orchestrations are jobs with a function, a user and the whole result (S53, S81).
func testRunnerJobs(t *testing.T, r *rig) {
	answer := r.ours.must(t, "jobs.list_job", r.ours.jid("runner"))
	if dig(answer, "Error") != nil || dig(answer, "Function") != "runner.test.arg" {
		t.Errorf("list_job of a runner gives %s", text(answer))
	}
	for id, result := range dig(answer, "Result").(map[string]any) {
		if !strings.HasSuffix(id, "_master") || text(dig(result, "return", "return", "args")) != `["go","home"]` {
			t.Errorf("the result of a runner is %s", text(answer))
		}
	}
	// The nested result of the orchestration was compared in the step "jobs runner".
	result := text(r.ours.must(t, "jobs.lookup_jid", r.ours.jid("orchestration")))
	for _, part := range []string{"from the orchestration", "/etc/app/it's_29.conf", `"outputter":"highstate"`} {
		if !strings.Contains(result, part) {
			t.Errorf("the result of an orchestration has no %q: %.2000s", part, result)
		}
	}
}

// testUnknownJob: no such job is no error (S67).
func testUnknownJob(t *testing.T, r *rig) {
	for _, question := range [][]string{
		{"jobs.list_job", "20010203040506000000"}, {"jobs.lookup_jid", "20010203040506000000"},
		{"jobs.print_job", "20010203040506000000"}, {"jobs.list_job", "no jid at all"},
	} {
		each(t, r.sides(), func(s *side) error {
			out, err := s.runner(t.Context(), question...)
			if err != nil {
				return err
			}
			if strings.Contains(out.Stdout+out.Stderr, "Traceback") {
				return fmt.Errorf("a stack trace: %s %s", out.Stdout, out.Stderr)
			}
			s.note(fmt.Sprint("unknown: ", question), fmt.Sprint(out.Code, out.Stdout))
			return nil
		})
	}
	r.compare(t)
	if _, code, err := r.view(t.Context(), "/v1/jobs/20010203040506000000", nil); err != nil || code != 404 {
		t.Errorf("HTTP gives %d, %v", code, err)
	}
}
