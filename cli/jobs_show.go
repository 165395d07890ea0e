package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"
)

// shownJob is one job with all its returns.
type shownJob struct {
	JID      text
	Time     *time.Time
	State    string
	Expected int
	Returned int
	Missing  int
	Failed   int
	Load     *struct {
		Fun        text
		Target     text
		TargetType text `json:"target_type"`
		User       text
		Master     text
		Keep       *int64
		Data       json.RawMessage
	}
	Minions []text
	EndTime text `json:"end_time"`
	NoCache bool
	Returns []shownReturn
}

type shownReturn struct {
	Minion  text
	Fun     text
	RetCode *json.Number
	Success *bool
	Failed  bool
	Return  json.RawMessage
}

func runJobsShow(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := newFlags("jobs show", "JID", stderr)
	address := httpFlag(flags)
	asJSON := flags.Bool("json", false, "one JSON document, for programs")
	if err := parseFlags(flags, args, 1); err != nil {
		return err
	}
	c, err := newClient(*address)
	if err != nil {
		return err
	}
	document, err := getJob(ctx, c, flags.Arg(0))
	var exit *ExitError
	if errors.As(err, &exit) && exit.Code == ExitNotFound {
		return &ExitError{Code: ExitNotFound, Err: fmt.Errorf(
			"saltern at %s knows no job %s; saltern jobs list shows those it knows", c.base, harmless(flags.Arg(0)))}
	}
	if err != nil {
		return err
	}
	if *asJSON {
		return writeJSON(stdout, document)
	}
	return writeJob(stdout, c, document)
}

// getJob asks for a job with all its returns: one document as of /v1/jobs/{jid}, with nothing left
// for a next page.
func getJob(ctx context.Context, c *client, jid string) (map[string]json.RawMessage, error) {
	path := "/v1/jobs/" + url.PathEscape(jid)
	var document map[string]json.RawMessage
	if err := c.get(ctx, path, nil, &document); err != nil {
		return nil, err
	}
	returns, page := []json.RawMessage{}, document
	for {
		var some []json.RawMessage
		var next *string
		if err := c.decode(page["returns"], &some); err != nil {
			return nil, err
		}
		if err := c.decode(page["next"], &next); err != nil {
			return nil, err
		}
		returns = append(returns, some...)
		if next == nil {
			break
		}
		page = nil
		if err := c.get(ctx, path+"/returns", url.Values{"after": {*next}}, &page); err != nil {
			return nil, err
		}
	}
	all, err := json.Marshal(returns)
	if err != nil {
		return nil, err
	}
	document["returns"] = all
	delete(document, "next")
	return document, nil
}

func writeJob(w io.Writer, c *client, document map[string]json.RawMessage) error {
	raw, err := json.Marshal(document)
	if err != nil {
		return err
	}
	var j shownJob
	if err := c.decode(raw, &j); err != nil {
		return err
	}
	var b strings.Builder
	writeHead(&b, &j)
	missing := map[text]bool{}
	for _, m := range j.Minions {
		missing[m] = true
	}
	for i := range j.Returns {
		delete(missing, j.Returns[i].Minion)
		writeReturn(&b, &j.Returns[i])
	}
	for _, m := range j.Minions {
		if missing[m] {
			fmt.Fprintf(&b, "\n%s: has not returned\n", harmless(string(m)))
		}
	}
	_, err = io.WriteString(w, b.String())
	return err
}

func writeHead(b *strings.Builder, j *shownJob) {
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(b, "%-10s %s\n", name, harmless(value))
		}
	}
	line("Job", string(j.JID))
	if l := j.Load; l != nil {
		line("Function", string(l.Fun))
		line("Arguments", arguments(l.Data))
		line("Target", fmt.Sprintf("%s (%s)", l.Target, l.TargetType))
		line("User", string(l.User))
		line("Master", string(l.Master))
	} else {
		line("Load", "none came; the job is known by its returns or minions alone")
	}
	line("Time", local(j.Time))
	line("Ended", string(j.EndTime))
	if j.State != "" {
		line("State", fmt.Sprintf("%s: %s returned, %d failed", j.State, returned(j.Expected, j.Returned), j.Failed))
	}
	if j.NoCache {
		line("Returns", "not kept: the job was run with nocache")
	}
}

// arguments are the arguments in a load as one line of JSON, empty when there are none.
func arguments(load json.RawMessage) string {
	var data struct {
		Arg json.RawMessage `json:"arg"`
	}
	if json.Unmarshal(load, &data) != nil || len(data.Arg) == 0 {
		return ""
	}
	if s := string(data.Arg); s != "[]" && s != "null" {
		return s
	}
	return ""
}

func writeReturn(b *strings.Builder, r *shownReturn) {
	verdict := "ok"
	if r.Failed {
		verdict = "failed"
	}
	code := "none"
	if r.RetCode != nil {
		code = r.RetCode.String()
	}
	fmt.Fprintf(b, "\n%s: %s, return code %s\n", harmless(string(r.Minion)), verdict, harmless(code))
	for line := range strings.SplitSeq(strings.TrimRight(result(r.Return), "\n"), "\n") {
		b.WriteString(strings.TrimRight("    "+line, " ") + "\n")
	}
}
