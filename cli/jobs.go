package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

const jobsUsage = `usage: saltern jobs list [flags]
       saltern jobs show JID [flags]

saltern jobs list -h and saltern jobs show -h list the flags.
`

func runJobs(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	return subcommands{"jobs", jobsUsage, []command{
		{name: "list", run: runJobsList}, {name: "show", run: runJobsShow},
	}}.run(ctx, args, stdout, stderr)
}

func runJobsList(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := newFlags("jobs list", "", stderr)
	l := newListing(flags)
	fun := flags.String("fun", "", "`PATTERN` of the function, as state.* or test.ping")
	tgt := flags.String("tgt", "", "`PATTERN` of the target as it was given")
	user := flags.String("user", "", "`USER` that ran the job, or a pattern")
	minion := flags.String("minion", "", "jobs that `MINION` was sent or has returned")
	master := flags.String("master", "", "`ID` of the master, or a pattern")
	state := flags.String("state", "", "`STATE`: running, complete, failed or incomplete")
	if err := parseFlags(flags, args, 0); err != nil {
		return err
	}
	switch *state {
	case "", "running", "complete", "failed", "incomplete":
	default:
		return usageError("--state %q: running, complete, failed or incomplete is needed", *state)
	}
	q, err := l.query()
	if err != nil {
		return err
	}
	setAll(q, map[string]string{
		"fun": *fun, "tgt": *tgt, "user": *user, "minion": *minion, "master": *master, "state": *state,
	})
	c, err := newClient(*l.http)
	if err != nil {
		return err
	}
	rows, more, err := l.collect(ctx, c, "/v1/jobs", "jobs", q)
	if err != nil {
		return err
	}
	if l.asJSON {
		return writeJSON(stdout, map[string]any{"jobs": rows, "more": more})
	}
	return writeJobs(stdout, c, rows, more)
}

// jobRow is a job of a list.
type jobRow struct {
	JID      text
	Time     *time.Time
	State    string
	Fun      text
	Target   text
	User     text
	Expected int
	Returned int
	Missing  int
	Failed   int
}

func writeJobs(w io.Writer, c *client, rows []json.RawMessage, more bool) error {
	if len(rows) == 0 {
		_, err := fmt.Fprintln(w, "no jobs")
		return err
	}
	t := table{columns: []column{
		{title: "JID"}, {title: "TIME"}, {title: "FUNCTION", least: 12}, {title: "TARGET", least: 10},
		{title: "USER", least: 6}, {title: "STATE"}, {title: "RETURNED", right: true}, {title: "FAILED", right: true},
	}}
	for _, raw := range rows {
		var j jobRow
		if err := c.decode(raw, &j); err != nil {
			return err
		}
		t.add(string(j.JID), local(j.Time), string(j.Fun), string(j.Target), string(j.User), j.State,
			returned(j.Expected, j.Returned), strconv.Itoa(j.Failed))
	}
	if err := t.write(w, terminalWidth(w)); err != nil {
		return err
	}
	return writeMore(w, more)
}

// returned is how many returns there are of how many minions, where that is known.
func returned(expected, returned int) string {
	if expected == 0 {
		return strconv.Itoa(returned)
	}
	return fmt.Sprintf("%d/%d", returned, expected)
}

func writeMore(w io.Writer, more bool) error {
	if !more {
		return nil
	}
	_, err := fmt.Fprintln(w, "There are more: --limit N, --all, or narrow it down (-h).")
	return err
}

// local is a time in the zone of the person.
func local(t *time.Time) string {
	if t == nil {
		return ""
	}
	return t.Local().Format(time.DateTime)
}

// text is a string of a payload in JSON: a string, or an object where JSON has no string for it.
type text string

// UnmarshalJSON takes anything; what is no string stands for itself.
func (t *text) UnmarshalJSON(raw []byte) error {
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		s = string(raw)
	}
	*t = text(strings.ToValidUTF8(s, "\ufffd"))
	return nil
}
