package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"
)

func runEvents(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := newFlags("events", "", stderr)
	l := newListing(flags)
	tag := flags.String("tag", "", "`PATTERN` of the tag, as salt/job/*/ret/*")
	master := flags.String("master", "", "`ID` of the master")
	if err := parseFlags(flags, args, 0); err != nil {
		return err
	}
	q, err := l.query()
	if err != nil {
		return err
	}
	setAll(q, map[string]string{"tag": *tag, "master": *master})
	c, err := newClient(*l.http)
	if err != nil {
		return err
	}
	rows, more, err := l.collect(ctx, c, "/v1/events", "events", q)
	if err != nil {
		return err
	}
	if l.asJSON {
		return writeJSON(stdout, map[string]any{"events": rows, "more": more})
	}
	return writeEvents(stdout, c, rows, more)
}

// eventRow is an event of a list.
type eventRow struct {
	Time   *time.Time
	Tag    text
	Master text
	Data   json.RawMessage
}

// dataColumns is how much of an event's data a line shows where the width is not known.
const dataColumns = 100

func writeEvents(w io.Writer, c *client, rows []json.RawMessage, more bool) error {
	if len(rows) == 0 {
		_, err := fmt.Fprintln(w, "no events")
		return err
	}
	t := table{columns: []column{
		{title: "TIME"}, {title: "MASTER", least: 8}, {title: "TAG", least: 40}, {title: "DATA", least: 10},
	}}
	for _, raw := range rows {
		var e eventRow
		if err := c.decode(raw, &e); err != nil {
			return err
		}
		var data bytes.Buffer
		if err := json.Compact(&data, e.Data); err != nil {
			return err
		}
		t.add(local(e.Time), string(e.Master), string(e.Tag), shorten(harmless(data.String()), dataColumns))
	}
	if err := t.write(w, terminalWidth(w)); err != nil {
		return err
	}
	return writeMore(w, more)
}
