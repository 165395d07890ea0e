package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"saltern/testbed"
	"saltern/testbed/rpcclient"
)

// answerTime is within which a master answers test.ping when its Saltern hangs or is away. On a machine that is so
// busy that a healthy master takes seconds under the same load, the fault may cost that much more than a healthy answer.
const answerTime, faultTime = 5 * time.Second, 3700 * time.Millisecond

// ping runs test.ping on alpha and gives the job's id and how long it took.
func (s *side) ping(t *testing.T) (string, time.Duration) {
	t.Helper()
	out, err := s.salt(t.Context(), "", "alpha", "test.ping")
	if err != nil {
		t.Fatal(err)
	}
	if out.Code != 0 || !strings.Contains(out.Stdout, `"alpha": true`) {
		t.Errorf("test.ping: code %d, %q, %q", out.Code, out.Stdout, out.Stderr)
	}
	return s.jid(""), out.Took
}

// pingInTime is ping under a fault; healthy is what it took before.
func (s *side) pingInTime(t *testing.T, healthy time.Duration) string {
	t.Helper()
	jid, took := s.ping(t)
	inTime(t, took, healthy)
	return jid
}

func inTime(t *testing.T, took, healthy time.Duration) {
	t.Helper()
	if took > max(answerTime, healthy+faultTime) {
		t.Errorf("test.ping took %v, and %v before the fault", took, healthy)
	}
}

// testHungDaemon: with Saltern stopped by SIGSTOP, 300 returns come through the master's workers, commands are
// answered in time, and afterwards every return is there (S27).
func testHungDaemon(t *testing.T, r *rig) {
	_, healthy := pingUnderReturns(t, r)
	if err := r.daemon.Hang(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.daemon.Continue() }()
	jids, slowest := pingUnderReturns(t, r)
	inTime(t, slowest, healthy)
	if err := r.daemon.Continue(); err != nil {
		t.Fatal(err)
	}
	// The spool goes with the next calls that find Saltern up.
	eventually(t, func() error {
		r.ours.ping(t)
		return r.stored(t.Context(), jids)
	})
}

// pingUnderReturns sends 300 returns to the master and runs test.ping meanwhile. It gives the ids of all these jobs and
// how long the slowest test.ping took.
func pingUnderReturns(t *testing.T, r *rig) (jids []string, slowest time.Duration) {
	t.Helper()
	type answer struct {
		jids []string
		err  error
	}
	sent := make(chan answer, 1)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		out, err := testbed.RunCommand(ctx, filepath.Join(r.env, "bin", "python"),
			filepath.Join("testdata", "send_returns.py"), r.ours.MinionConfig("alpha"), "300")
		var a answer
		if a.err = err; err == nil {
			if err := json.Unmarshal([]byte(out.Stdout), &a.jids); err != nil {
				a.err = fmt.Errorf("%w: %q %q", err, out.Stdout, out.Stderr)
			}
		}
		sent <- a
	}()
	for {
		jid, took := r.ours.ping(t)
		jids, slowest = append(jids, jid), max(slowest, took)
		select {
		case a := <-sent:
			if a.err != nil {
				t.Fatal(a.err)
			}
			return append(jids, a.jids...), slowest
		default:
		}
	}
}

// stored is nil when each job has the return of alpha.
func (r *rig) stored(ctx context.Context, jids []string) error {
	c, err := rpcclient.Dial("unix", r.daemon.Socket)
	if err != nil {
		return err
	}
	defer c.Close()
	missing := 0
	for _, jid := range jids {
		answer, err := c.Call(ctx, "get_jid", jid, "")
		if err != nil {
			return err
		}
		page, ok := answer.([]any)
		if !ok || len(page) != 2 {
			return fmt.Errorf("get_jid gives %v", answer)
		}
		if returns, ok := page[0].(map[string]any); !ok || len(returns) != 1 || returns["alpha"] == nil {
			missing++
		}
	}
	if missing > 0 {
		return fmt.Errorf("%d of %d jobs have no return", missing, len(jids))
	}
	return nil
}

// testKilledDaemon: with Saltern killed the master publishes, runners say so in one line, and afterwards every job,
// return and event is there, once (S03, S06, S67).
func testKilledDaemon(t *testing.T, r *rig) {
	s := r.ours
	if _, err := s.salt(t.Context(), "", "--async", "beta", "odd.slow", "40"); err != nil {
		t.Fatal(err)
	}
	_, healthy := s.ping(t)
	if err := r.daemon.Kill(); err != nil {
		t.Fatal(err)
	}
	jids := []string{s.pingInTime(t, healthy), s.pingInTime(t, healthy)}
	for _, question := range [][]string{
		{"jobs.list_jobs"}, {"jobs.list_job", jids[0]}, {"jobs.lookup_jid", jids[0]}, {"jobs.print_job", jids[0]},
		{"jobs.active"}, {"jobs.last_run"},
	} {
		oneLine(t, r, question)
	}
	out, err := s.salt(t.Context(), "", "*", "state.apply", "thirty")
	if err != nil {
		t.Fatal(err)
	}
	if out.Code != 0 {
		t.Errorf("state.apply with Saltern killed: %d, %q", out.Code, out.Stderr)
	}
	states := s.jid("")
	if err := r.daemon.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		jid, _ := s.ping(t)
		jids = append(jids, jid)
		if err := r.stored(t.Context(), jids); err != nil {
			return err
		}
		if got := keys(s.must(t, "jobs.lookup_jid", states)); !slices.Equal(got, minions) {
			return fmt.Errorf("the states have the returns of %v", got)
		}
		return nil
	})
	answer := s.must(t, "jobs.list_job", states)
	if dig(answer, "Target") != "*" || dig(answer, "Function") != "state.apply" ||
		text(dig(answer, "Minions")) != `["alpha","beta"]` || !strings.Contains(text(dig(answer, "Arguments")), "thirty") {
		t.Errorf("a job from the spool is %s", text(answer))
	}
	eventually(t, func() error {
		s.ping(t) // its events push those that the master collects
		tags, err := r.tags(t, "salt/job/"+states+"/*")
		if err != nil {
			return err
		}
		for _, end := range []string{"new", "ret/alpha", "ret/beta"} {
			if n := count(tags, "salt/job/"+states+"/"+end); n != 1 {
				return fmt.Errorf("the event %s is there %d times", end, n)
			}
		}
		return nil
	})
}

// oneLine runs a runner that cannot ask Saltern: one line with the address, exit code 1, no stack trace.
func oneLine(t *testing.T, r *rig, question []string) {
	t.Helper()
	out, err := r.ours.Run(t.Context(), "salt-run", question...)
	if err != nil {
		t.Fatal(err)
	}
	said := out.Stdout + out.Stderr
	if out.Code != 1 || strings.Contains(said, "Traceback") {
		t.Errorf("salt-run %v with Saltern killed: code %d, stdout %q, stderr %q", question, out.Code, out.Stdout, out.Stderr)
	}
	lines := 0
	for line := range strings.Lines(said) {
		// jobs.active first asks the minions; the client that does so warns by itself.
		if strings.Contains(line, r.daemon.Socket) && !strings.HasPrefix(line, "[WARNING") {
			lines++
		}
	}
	if lines != 1 {
		t.Errorf("salt-run %v says %d lines about Saltern: %q", question, lines, said)
	}
}

// testMasterStops: a master whose event returner waits for a hung Saltern stops within 10 s; what it had is in the
// spool. Then a master that starts before Saltern publishes, and all is there once Saltern is (S58, S66).
func testMasterStops(t *testing.T, r *rig) {
	s := r.ours
	if err := r.daemon.Hang(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.daemon.Continue() }()
	jid, _ := s.ping(t)
	start := time.Now()
	if err := s.StopMaster(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("the master took %v to stop", took)
	}
	if err := r.daemon.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := s.RestartMaster(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	first, _ := s.ping(t)
	jids := []string{jid, first}
	if err := r.daemon.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		jid, _ := s.ping(t)
		jids = append(jids, jid)
		if err := r.stored(t.Context(), jids); err != nil {
			return err
		}
		for _, one := range jids[:2] {
			tags, err := r.tags(t, "salt/job/"+one+"/*")
			if n := count(tags, "salt/job/"+one+"/ret/alpha"); err != nil || n != 1 {
				return fmt.Errorf("the event of a return is there %d times, %w", n, err)
			}
		}
		return nil
	})
	eventually(t, func() error { return spooled(r.spool(s.name)) })
}

// spooled is nil when nothing waits in a spool.
func spooled(dir string) error {
	return filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if info, err := d.Info(); err == nil && info.Size() > 0 && strings.HasSuffix(path, ".spool") {
			return fmt.Errorf("%s still waits", path)
		}
		return nil
	})
}
