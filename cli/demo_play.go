package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"time"

	"saltern/testbed"
)

// demoJob is a job of the demo, and what is right about it.
type demoJob struct {
	fun     string
	args    []string
	retcode int64
	failed  bool
	right   func(result json.RawMessage) bool // of one minion

	master  string
	minions []string
	jid     string // once it has run
}

// demoJobs are the jobs of one master.
func demoJobs(master string, minions []string) []*demoJob {
	jobs := []*demoJob{
		{fun: "test.ping", right: func(r json.RawMessage) bool { return string(r) == "true" }},
		{fun: "state.apply", args: []string{"demo"}, right: func(r json.RawMessage) bool {
			states, ok := stateRun(r)
			for _, s := range states {
				ok = ok && s.Result != nil && *s.Result
			}
			return ok && len(states) == demoStateCount
		}},
		{fun: "cmd.run", args: []string{"echo it fails; exit 3"}, retcode: 3, failed: true,
			right: func(r json.RawMessage) bool { return string(r) == `"it fails"` }},
	}
	for _, j := range jobs {
		j.master, j.minions = master, minions
	}
	return jobs
}

// play runs jobs at every master, shows what Saltern and Salt say of those of the first one at the last one, which is
// the same where there is one, and gives what was wrong.
func (d *demo) play(ctx context.Context) ([]string, error) {
	c := &demoCheck{}
	for _, m := range d.masters {
		for _, j := range demoJobs(m.id, m.minions) {
			line := d.at(m) + strings.TrimSpace("salt '*' "+j.fun+" "+strings.Join(j.args, " "))
			if err := d.step(line, func() error { return m.runJob(ctx, j) }); err != nil {
				return nil, err
			}
			c.jobs = append(c.jobs, j)
		}
	}
	v := &demoView{demo: d, demoMaster: d.masters[len(d.masters)-1], check: c}
	states, failing := c.jobs[1], c.jobs[2]
	for _, show := range []func() error{
		func() error { return v.showJobs(ctx) },
		func() error { return v.showJob(ctx, states) },
		func() error { return v.showJob(ctx, failing) },
		func() error { return v.showEvents(ctx, failing) },
		func() error { return v.showListJobs(ctx) },
		func() error { return v.showLookup(ctx, failing) },
		func() error { return v.showGetJID(ctx, failing) },
	} {
		if err := show(); err != nil {
			return nil, err
		}
	}
	if err := d.lookAtAll(ctx, c); err != nil {
		return nil, err
	}
	return c.faults, nil
}

// lookAtAll looks at every job through every Saltern: nothing to see, but it has to be right.
func (d *demo) lookAtAll(ctx context.Context, c *demoCheck) error {
	for _, m := range d.masters {
		for _, j := range c.jobs {
			document, err := getJob(ctx, m.client, j.jid)
			if err != nil {
				return err
			}
			c.job(m.client, j, document)
		}
	}
	return nil
}

// at says at which master something is done, where there are several.
func (d *demo) at(m *demoMaster) string {
	if len(d.masters) == 1 {
		return ""
	}
	return m.id + ": "
}

// demoView is the demo as seen at one of its masters.
type demoView struct {
	*demo
	*demoMaster
	check *demoCheck
}

// patience is how long what Salt has stored after it answered may take to be seen.
const patience = 30 * time.Second

// runJob runs a job on all minions and waits until Saltern has all of it.
func (m *demoMaster) runJob(ctx context.Context, j *demoJob) error {
	out, err := m.salt.Run(ctx, "salt", append([]string{"*", j.fun}, j.args...)...)
	if err != nil {
		return err
	}
	if (out.Code != 0) != j.failed {
		return fmt.Errorf("salt ended with %d: %s%s", out.Code, harmlessLines(out.Stdout), harmlessLines(out.Stderr))
	}
	// Salt answers before it has stored the returns.
	return waitFor(ctx, patience, func() (bool, error) {
		var page struct{ Jobs []jobRow }
		q := url.Values{"fun": {j.fun}, "minion": {j.minions[0]}, "limit": {"1"}}
		if err := m.client.get(ctx, "/v1/jobs", q, &page); err != nil {
			return false, err
		}
		if len(page.Jobs) == 0 || page.Jobs[0].Returned < len(j.minions) {
			return false, nil
		}
		j.jid = string(page.Jobs[0].JID)
		return true, nil
	}, "the returns of %s in Saltern", j.fun)
}

func (v *demoView) showJobs(ctx context.Context) error {
	v.title("saltern jobs list")
	var page struct{ Jobs []json.RawMessage }
	if err := v.client.get(ctx, "/v1/jobs", nil, &page); err != nil {
		return err
	}
	v.check.list(v.client, page.Jobs)
	return writeJobs(v.out, v.client, page.Jobs, false)
}

func (v *demoView) showJob(ctx context.Context, j *demoJob) error {
	v.title("saltern jobs show %s", j.jid)
	document, err := getJob(ctx, v.client, j.jid)
	if err != nil {
		return err
	}
	v.check.job(v.client, j, document)
	return writeJob(v.out, v.client, document)
}

func (v *demoView) showEvents(ctx context.Context, j *demoJob) error {
	tag := "salt/job/" + j.jid + "/*"
	v.title("saltern events --tag '%s'", tag)
	q := url.Values{"tag": {tag}}
	var page struct{ Events []json.RawMessage }
	// The master hands events over a while after it has fired them.
	err := waitFor(ctx, patience, func() (bool, error) {
		err := v.client.get(ctx, "/v1/events", q, &page)
		return missingEvents(v.client, j, page.Events) == "", err
	}, "the events of %s in Saltern", j.jid)
	if err != nil && page.Events == nil {
		return err
	}
	if missing := missingEvents(v.client, j, page.Events); missing != "" {
		v.check.faultf("events: there is no %s", missing)
	}
	return writeEvents(v.out, v.client, page.Events, false)
}

func (v *demoView) showListJobs(ctx context.Context) error {
	var answer map[string]listedJob
	err := v.showSalt(&answer, "salt-run jobs.list_jobs", func() (*testbed.Output, error) {
		return v.salt.Run(ctx, "salt-run", "--out=json", "jobs.list_jobs")
	})
	v.check.listJobs(answer)
	return err
}

func (v *demoView) showLookup(ctx context.Context, j *demoJob) error {
	var answer map[string]json.RawMessage
	err := v.showSalt(&answer, "salt-run jobs.lookup_jid "+j.jid, func() (*testbed.Output, error) {
		return v.salt.Run(ctx, "salt-run", "--out=json", "jobs.lookup_jid", j.jid)
	})
	v.check.lookup(j, answer)
	return err
}

func (v *demoView) showGetJID(ctx context.Context, j *demoJob) error {
	var answer struct{ Local map[string]savedReturn }
	err := v.showSalt(&answer, "salt-call ret.get_jid saltern "+j.jid+" --output=json", func() (*testbed.Output, error) {
		return v.salt.Call(ctx, v.minions[0], "ret.get_jid", "saltern", j.jid, "--output=json")
	})
	v.check.getJID(j, answer.Local)
	return err
}

// showSalt runs a command of Salt, shows its JSON and decodes it.
func (v *demoView) showSalt(into any, line string, run func() (*testbed.Output, error)) error {
	v.title("%s", line)
	out, err := run()
	if err != nil {
		return err
	}
	fmt.Fprintln(v.out, strings.TrimSpace(harmlessLines(out.Stdout)))
	return json.NewDecoder(bytes.NewBufferString(out.Stdout)).Decode(into)
}

func (v *demoView) title(format string, args ...any) {
	fmt.Fprintf(v.out, "\n"+v.at(v.demoMaster)+"$ "+format+"\n", args...)
}

// step does something that takes a while, and shows that it goes on.
func (d *demo) step(what string, do func() error) error {
	start := time.Now()
	fmt.Fprintf(d.out, "%s …", what)
	done := make(chan error, 1)
	go func() { done <- do() }()
	tick := time.NewTicker(2 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			fmt.Fprint(d.out, ".")
		case err := <-done:
			if err != nil {
				fmt.Fprintln(d.out, " failed")
				return fmt.Errorf("%s: %w", what, err)
			}
			fmt.Fprintf(d.out, " %.1f s\n", time.Since(start).Seconds())
			return nil
		}
	}
}

// waitFor asks until the answer is yes or an error, or patience ends.
func waitFor(ctx context.Context, patience time.Duration, ask func() (bool, error), format string, args ...any) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		if yes, err := ask(); yes || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf(format+" did not come within %v", append(args, patience)...)
		case <-time.After(100 * time.Millisecond):
		}
	}
}
