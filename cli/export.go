package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"strconv"
	"time"
)

const exportUsage = `usage: saltern export json [flags]
       saltern export local_cache DIR [flags]

json         jobs and events on standard output, one JSON document a line: {"job": ...} and after it a
             {"return": ...} of each minion, then {"event": ...}; newest first
local_cache  jobs into the cachedir of a master, as /var/cache/salt/master, for Salt's own local_cache:
             the way back. What is there stays; it can be run again
`

func runExport(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	return subcommands{"export", exportUsage, []command{
		{name: "json", run: exportJSON}, {name: "local_cache", run: exportLocalCache},
	}}.run(ctx, args, stdout, stderr)
}

func exportJSON(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := newFlags("export json", "", stderr)
	address := httpFlag(flags)
	from, to := moment{now: time.Now}, moment{now: time.Now}
	flags.Var(&from, "from", "not before `TIME`: a span before now (90s, 2h, 7d), a date, or RFC 3339")
	flags.Var(&to, "to", "before `TIME`")
	events := flags.Bool("events", true, "the events too")
	if err := parseFlags(flags, args, 0); err != nil {
		return err
	}
	c, err := newClient(*address)
	if err != nil {
		return err
	}
	times := url.Values{}
	for name, m := range map[string]moment{"from": from, "to": to} {
		if !m.IsZero() {
			times.Set(name, m.UTC().Format(time.RFC3339Nano))
		}
	}
	out := bufio.NewWriterSize(stdout, 64<<10)
	e := &jsonExport{ctx: ctx, client: c, out: out}
	if err := e.pages("/v1/jobs", "jobs", times, e.job); err != nil {
		return errors.Join(err, out.Flush())
	}
	if *events {
		if err := e.pages("/v1/events", "events", times, func(event json.RawMessage) error {
			return e.line("event", event)
		}); err != nil {
			return errors.Join(err, out.Flush())
		}
	}
	return out.Flush()
}

// jsonExport writes lines. It holds a page of a list and a page of returns.
type jsonExport struct {
	ctx    context.Context
	client *client
	out    *bufio.Writer
}

// pages gives each row of a list to take.
func (e *jsonExport) pages(path, key string, times url.Values, take func(json.RawMessage) error) error {
	q := maps.Clone(times)
	q.Set("limit", strconv.Itoa(pageSize))
	for {
		var page map[string]json.RawMessage
		if err := e.client.get(e.ctx, path, q, &page); err != nil {
			return err
		}
		var rows []json.RawMessage
		if err := e.client.decode(page[key], &rows); err != nil {
			return err
		}
		for _, row := range rows {
			if err := take(row); err != nil {
				return err
			}
		}
		var next *string
		if err := e.client.decode(page["next"], &next); err != nil {
			return err
		}
		if next == nil {
			return nil
		}
		q.Set("cursor", *next)
	}
}

// job writes a job and its returns, page by page.
func (e *jsonExport) job(row json.RawMessage) error {
	var named struct{ JID string }
	if err := e.client.decode(row, &named); err != nil {
		return err
	}
	path := "/v1/jobs/" + url.PathEscape(named.JID)
	var page map[string]json.RawMessage
	if err := e.client.get(e.ctx, path, nil, &page); err != nil {
		var exit *ExitError
		if errors.As(err, &exit) && exit.Code == ExitNotFound {
			return nil // it has passed its time since it was listed
		}
		return err
	}
	head := maps.Clone(page)
	delete(head, "returns")
	delete(head, "next")
	if err := e.line("job", head); err != nil {
		return err
	}
	for {
		var returns []map[string]json.RawMessage
		if err := e.client.decode(page["returns"], &returns); err != nil {
			return err
		}
		for _, r := range returns {
			r["jid"] = head["jid"]
			if err := e.line("return", r); err != nil {
				return err
			}
		}
		var next *string
		if err := e.client.decode(page["next"], &next); err != nil {
			return err
		}
		if next == nil {
			return nil
		}
		page = nil
		if err := e.client.get(e.ctx, path+"/returns", url.Values{"after": {*next}}, &page); err != nil {
			return err
		}
	}
}

func (e *jsonExport) line(kind string, value any) error {
	b, err := json.Marshal(map[string]any{kind: value})
	if err != nil {
		return fmt.Errorf("the answer of %s: %w", e.client.base, err)
	}
	_, err = e.out.Write(append(b, '\n'))
	return err
}
