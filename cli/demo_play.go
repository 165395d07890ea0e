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

	jid string // once it has run
}

func demoJobs() []*demoJob {
	return []*demoJob{
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
}

// play runs the jobs, shows what Saltern and Salt say of them, and gives what was wrong.
func (d *demo) play(ctx context.Context) ([]string, error) {
	jobs := demoJobs()
	for _, j := range jobs {
		line := strings.TrimSpace(j.fun + " " + strings.Join(j.args, " "))
		if err := d.step("salt '*' "+line, func() error { return d.runJob(ctx, j) }); err != nil {
			return nil, err
		}
	}
	c := &demoCheck{jobs: jobs}
	ping, states, failing := jobs[0], jobs[1], jobs[2]
	for _, show := range []func() error{
		func() error { return d.showJobs(ctx, c) },
		func() error { return d.showJob(ctx, c, states) },
		func() error { return d.showJob(ctx, c, failing) },
		func() error { return d.showEvents(ctx, c, failing) },
		func() error { return d.showListJobs(ctx, c) },
		func() error { return d.showLookup(ctx, c, failing) },
		func() error { return d.showGetJID(ctx, c, failing) },
	} {
		if err := show(); err != nil {
			return nil, err
		}
	}
	// Nothing to see, but it has to be right.
	document, err := getJob(ctx, d.client, ping.jid)
	if err != nil {
		return nil, err
	}
	c.job(d.client, ping, document)
	return c.faults, nil
}

// patience is how long what Salt has stored after it answered may take to be seen.
const patience = 30 * time.Second

// runJob runs a job on all minions and waits until Saltern has all of it.
func (d *demo) runJob(ctx context.Context, j *demoJob) error {
	out, err := d.salt.Run(ctx, "salt", append([]string{"*", j.fun}, j.args...)...)
	if err != nil {
		return err
	}
	if (out.Code != 0) != j.failed {
		return fmt.Errorf("salt ended with %d: %s%s", out.Code, harmlessLines(out.Stdout), harmlessLines(out.Stderr))
	}
	// Salt answers before it has stored the returns.
	return waitFor(ctx, patience, func() (bool, error) {
		var page struct{ Jobs []jobRow }
		q := url.Values{"fun": {j.fun}, "limit": {"1"}}
		if err := d.client.get(ctx, "/v1/jobs", q, &page); err != nil {
			return false, err
		}
		if len(page.Jobs) == 0 || page.Jobs[0].Returned < len(demoMinions) {
			return false, nil
		}
		j.jid = string(page.Jobs[0].JID)
		return true, nil
	}, "the returns of %s in Saltern", j.fun)
}

func (d *demo) showJobs(ctx context.Context, c *demoCheck) error {
	d.title("saltern jobs list")
	var page struct{ Jobs []json.RawMessage }
	if err := d.client.get(ctx, "/v1/jobs", nil, &page); err != nil {
		return err
	}
	c.list(d.client, page.Jobs)
	return writeJobs(d.out, d.client, page.Jobs, false)
}

func (d *demo) showJob(ctx context.Context, c *demoCheck, j *demoJob) error {
	d.title("saltern jobs show %s", j.jid)
	document, err := getJob(ctx, d.client, j.jid)
	if err != nil {
		return err
	}
	c.job(d.client, j, document)
	return writeJob(d.out, d.client, document)
}

func (d *demo) showEvents(ctx context.Context, c *demoCheck, j *demoJob) error {
	tag := "salt/job/" + j.jid + "/*"
	d.title("saltern events --tag '%s'", tag)
	q := url.Values{"tag": {tag}}
	var page struct{ Events []json.RawMessage }
	// The master hands events over a while after it has fired them.
	err := waitFor(ctx, patience, func() (bool, error) {
		err := d.client.get(ctx, "/v1/events", q, &page)
		return missingEvents(d.client, j, page.Events) == "", err
	}, "the events of %s in Saltern", j.jid)
	if err != nil && page.Events == nil {
		return err
	}
	if missing := missingEvents(d.client, j, page.Events); missing != "" {
		c.faultf("events: there is no %s", missing)
	}
	return writeEvents(d.out, d.client, page.Events, false)
}

func (d *demo) showListJobs(ctx context.Context, c *demoCheck) error {
	var answer map[string]listedJob
	err := d.showSalt(&answer, "salt-run jobs.list_jobs", func() (*testbed.Output, error) {
		return d.salt.Run(ctx, "salt-run", "--out=json", "jobs.list_jobs")
	})
	c.listJobs(answer)
	return err
}

func (d *demo) showLookup(ctx context.Context, c *demoCheck, j *demoJob) error {
	var answer map[string]json.RawMessage
	err := d.showSalt(&answer, "salt-run jobs.lookup_jid "+j.jid, func() (*testbed.Output, error) {
		return d.salt.Run(ctx, "salt-run", "--out=json", "jobs.lookup_jid", j.jid)
	})
	c.lookup(j, answer)
	return err
}

func (d *demo) showGetJID(ctx context.Context, c *demoCheck, j *demoJob) error {
	var answer struct{ Local map[string]savedReturn }
	err := d.showSalt(&answer, "salt-call ret.get_jid saltern "+j.jid+" --output=json", func() (*testbed.Output, error) {
		return d.salt.Call(ctx, demoMinions[0], "ret.get_jid", "saltern", j.jid, "--output=json")
	})
	c.getJID(j, answer.Local)
	return err
}

// showSalt runs a command of Salt, shows its JSON and decodes it.
func (d *demo) showSalt(into any, line string, run func() (*testbed.Output, error)) error {
	d.title("%s", line)
	out, err := run()
	if err != nil {
		return err
	}
	fmt.Fprintln(d.out, strings.TrimSpace(harmlessLines(out.Stdout)))
	return json.NewDecoder(bytes.NewBufferString(out.Stdout)).Decode(into)
}

func (d *demo) title(format string, args ...any) {
	fmt.Fprintf(d.out, "\n$ "+format+"\n", args...)
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
