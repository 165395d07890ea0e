package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
)

// commands are what every side is given: a label and the arguments of salt.
var commands = []struct {
	label string
	args  []string
	fails bool // salt ends with another code than 0
}{
	{"ping", []string{"*", "test.ping"}, false},
	{"states", []string{"*", "state.apply", "thirty"}, false},
	{"failing states", []string{"alpha", "state.apply", "failing"}, true},
	{"kwargs", []string{"alpha", "test.arg", "go", "it's", "size=3", `deep={"a": [1, 2.5, null]}`}, false},
	{"failing command", []string{"-L", "alpha,beta", "cmd.run", "exit 3"}, true},
	{"no such function", []string{"beta", "no.such"}, true},
	{"metadata", []string{"alpha", "test.arg", "m", `metadata={"task_id": "t1"}`}, false},
}

// giveCommands runs every kind of command of the salt program, on all sides at once, and notes what is printed.
func giveCommands(t *testing.T, sides ...*side) {
	ctx := t.Context()
	for _, c := range commands {
		each(t, sides, func(s *side) error {
			out, err := s.salt(ctx, c.label, c.args...)
			if err != nil {
				return err
			}
			if (out.Code != 0) != c.fails {
				return fmt.Errorf("salt %q ends with %d, stderr %q", c.args, out.Code, out.Stderr)
			}
			printed, err := documents(out.Stdout)
			s.note("salt "+strings.Join(c.args, " "), printed)
			return err
		})
	}
	each(t, sides, func(s *side) error { return giveBatch(ctx, s) })
	// Asynchronous: answered at once, looked up later.
	each(t, sides, func(s *side) error {
		if _, err := s.salt(ctx, "async", "--async", "*", "odd.slow", "1"); err != nil {
			return err
		}
		return poll(func() error {
			answer, err := s.ask(ctx, "jobs.lookup_jid", s.jid("async"))
			if got := keys(answer); err == nil && !slices.Equal(got, minions) {
				err = fmt.Errorf("the asynchronous job has the returns of %v", got)
			}
			return err
		})
	})
}

// giveBatch runs a job minion by minion. Salt 3008 gives all chunks one jid, 3006 one each; the list has them.
func giveBatch(ctx context.Context, s *side) error {
	out, err := s.Run(ctx, "salt", "--batch-size=1", "--out=json", "--static", "*", "test.echo", "in batches")
	if err != nil {
		return err
	}
	if out.Code != 0 || strings.Count(out.Stdout, "in batches") < len(minions) {
		return fmt.Errorf("batch mode ends with %d: %q %q", out.Code, out.Stdout, out.Stderr)
	}
	listed, err := s.ask(ctx, "jobs.list_jobs", "search_function=test.echo")
	if err != nil {
		return err
	}
	chunks := slices.DeleteFunc(keys(listed), func(jid string) bool {
		// The store may have the jobs of an earlier step of the same name.
		return jid < s.jid("ping") || !strings.Contains(text(dig(listed, jid, "Arguments")), "in batches")
	})
	for _, jid := range chunks {
		label := "batch"
		if len(chunks) > 1 {
			// Which minion is first is not the same on two masters.
			label += " " + text(dig(listed, jid, "Target"))
		}
		s.label(label, jid)
	}
	if len(chunks) == 0 {
		return fmt.Errorf("the job in batches is not listed: %s", text(listed))
	}
	return nil
}

// giveOthers gives the commands whose returns only a master_job_cache stores: salt-call and runners.
func giveOthers(t *testing.T, sides ...*side) {
	ctx := t.Context()
	each(t, sides, func(s *side) error {
		answer, err := s.call(ctx, "alpha", "test.arg", "from", "the minion", "size=4")
		if err != nil {
			return err
		}
		if got := text(dig(answer, "args")); got != `["from","the minion"]` {
			return fmt.Errorf("salt-call gives %s", text(answer))
		}
		if _, err := s.ask(ctx, "test.arg", "go", "home", "by=bus"); err != nil {
			return err
		}
		if _, err := s.ask(ctx, "state.orchestrate", "orch"); err != nil {
			return err
		}
		// A runner's job has no arguments in the list.
		for label, has := range map[string]struct{ function, argument string }{
			"salt-call":     {"test.arg", "the minion"},
			"runner":        {"runner.test.arg", ""},
			"orchestration": {"runner.state.orchestrate", ""},
		} {
			listed, err := s.ask(ctx, "jobs.list_jobs", "search_function="+has.function)
			if err != nil {
				return err
			}
			i := slices.IndexFunc(keys(listed), func(jid string) bool {
				return strings.Contains(text(dig(listed, jid, "Arguments")), has.argument)
			})
			if i < 0 {
				return fmt.Errorf("%s is not among the jobs of %s: %s", label, has.function, text(listed))
			}
			s.label(label, keys(listed)[i])
		}
		return nil
	})
}

// documents merges the JSON objects that salt prints, one for each minion, after the line with the jid.
func documents(printed string) (map[string]any, error) {
	_, rest, _ := strings.Cut(printed, "\n")
	all := map[string]any{}
	d := json.NewDecoder(strings.NewReader(rest))
	d.UseNumber()
	for {
		one := map[string]any{}
		err := d.Decode(&one)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("not JSON: %w: %q", err, printed)
		}
		for key, value := range one {
			all[key] = value
		}
	}
}

// askRunners asks the runners for every job and notes the answers; times are held against the jids.
func askRunners(t *testing.T, sides ...*side) {
	ctx := t.Context()
	each(t, sides, func(s *side) error {
		for _, label := range s.labels() {
			answer, err := s.ask(ctx, "jobs.list_job", s.jid(label))
			if err != nil {
				return err
			}
			if err := s.noteJob("jobs.list_job of "+label, s.jid(label), answer); err != nil {
				return err
			}
		}
		for _, question := range [][]string{
			{"jobs.lookup_jid", "states"}, {"jobs.lookup_jid", "failing states"}, {"jobs.lookup_jid", "orchestration"},
			{"jobs.exit_success", "ping"}, {"jobs.exit_success", "failing command"},
		} {
			if !slices.Contains(s.labels(), question[1]) {
				continue
			}
			answer, err := s.ask(ctx, question[0], s.jid(question[1]))
			if err != nil {
				return err
			}
			s.note(strings.Join(question, " of "), answer)
		}
		answer, err := s.ask(ctx, "jobs.print_job", s.jid("kwargs"))
		if err != nil {
			return err
		}
		return s.noteJob("jobs.print_job", s.jid("kwargs"), dig(answer, s.jid("kwargs")))
	})
}

// noteJob notes a job as the runners format it, with what local_cache keeps of its returns, after testing what
// cannot be compared: the times, and that Saltern gives the returns whole.
func (s *side) noteJob(what, jid string, answer any) error {
	fields, ok := answer.(map[string]any)
	if !ok {
		return fmt.Errorf("%s gives %s", what, text(answer))
	}
	if got, want := fields["StartTime"], startTime(jid); got != want {
		return fmt.Errorf("%s: started %v, want %s", what, got, want)
	}
	// Salt takes the end time of a salt-call before it makes the jid.
	if end, ok := fields["EndTime"].(string); ok && end < startTime(jid) && jid != s.jids["salt-call"] {
		return fmt.Errorf("%s: ended %q, before it started", what, end)
	}
	if s.name == "ours" {
		for _, id := range keys(fields["Result"]) {
			if got := dig(fields["Result"], id, "jid"); got != jid && dig(fields["Result"], id, "return", "jid") != jid {
				return fmt.Errorf("%s: the return of %s has jid %v, want %s", what, id, got, jid)
			}
			if got := dig(fields["Result"], id, "id"); got != id {
				return fmt.Errorf("%s: the return of %s has id %v", what, id, got)
			}
		}
	}
	fields["Result"] = plain(fields["Result"])
	s.note(what, fields)
	return nil
}

// askListings notes list_jobs, list_jobs_filter and last_run, and looks for a running job with active.
func askListings(t *testing.T, sides ...*side) {
	ctx := t.Context()
	each(t, sides, func(s *side) error {
		answer, err := s.ask(ctx, "jobs.list_jobs")
		if err != nil {
			return err
		}
		for _, label := range s.labels() {
			row := dig(answer, s.jid(label))
			if got, want := dig(row, "StartTime"), startTime(s.jid(label)); got != want {
				return fmt.Errorf("list_jobs: %s started %v, want %s", label, got, want)
			}
			s.note("row of list_jobs of "+label, row)
		}
		if answer, err = s.ask(ctx, "jobs.list_jobs_filter", "500"); err != nil {
			return err
		}
		var order []string
		rows, _ := answer.([]any)
		for _, row := range rows {
			jid := fmt.Sprint(dig(row, "JID"))
			order = append(order, jid)
			for _, label := range s.labels() {
				if s.jid(label) == jid {
					s.note("row of list_jobs_filter of "+label, row)
				}
			}
		}
		if !slices.IsSorted(order) {
			return fmt.Errorf("list_jobs_filter is not ascending: %v", order)
		}
		if answer, err = s.ask(ctx, "jobs.last_run", "function=cmd.run"); err != nil {
			return err
		}
		jid := s.jid("failing command")
		if err := s.noteJob("jobs.last_run", jid, dig(answer, jid)); err != nil {
			return err
		}
		if _, err := s.salt(ctx, "", "--async", "alpha", "odd.slow", "8"); err != nil {
			return err
		}
		if answer, err = s.ask(ctx, "jobs.active"); err != nil {
			return err
		}
		job := dig(answer, s.jid(""))
		if dig(job, "Function") != "odd.slow" || !strings.Contains(text(dig(job, "Running")), "alpha") {
			return fmt.Errorf("jobs.active gives %s", text(answer))
		}
		return nil
	})
}

// testRet asks the four functions of the ret module on a minion.
func testRet(t *testing.T, r *rig) {
	s := r.ours
	ask := func(args ...string) any {
		t.Helper()
		answer, err := s.call(t.Context(), "alpha", args...)
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}
	answer := ask("ret.get_jid", "saltern", s.jid("kwargs"))
	if got := keys(answer); !slices.Equal(got, []string{"alpha"}) {
		t.Errorf("ret.get_jid has the minions %v", got)
	}
	for _, key := range []string{"fun_args", "jid", "return", "retcode", "success", "cmd", "_stamp", "fun", "id"} {
		if !slices.Contains(keys(dig(answer, "alpha")), key) {
			t.Errorf("ret.get_jid: alpha's return has no %q: %s", key, text(answer))
		}
	}
	ids, ok := ask("ret.get_jids", "saltern").([]any)
	if !ok {
		t.Fatal("ret.get_jids gives no list")
	}
	for _, label := range s.labels() {
		if !slices.Contains(ids, any(s.jid(label))) {
			t.Errorf("ret.get_jids lacks %s", label)
		}
	}
	if list, _ := ask("ret.get_minions", "saltern").([]any); !slices.Contains(list, any("alpha")) || !slices.Contains(list, any("beta")) {
		t.Errorf("ret.get_minions gives %s", text(list))
	}
	// The last function of beta is what it is told now; S60.
	if _, err := s.salt(t.Context(), "", "beta", "test.version"); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if got := text(ask("ret.get_fun", "saltern", "test.version")); got != `{"beta":"test.version"}` {
			return fmt.Errorf("ret.get_fun gives %s", got)
		}
		return nil
	})
}
