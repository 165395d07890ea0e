package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// slowCall is a call of /v1/slow.
type slowCall struct {
	Method  string
	Time    *time.Time
	Took    float64 `json:"took_ms"`
	Why     string
	Error   string
	JID     text
	Lookups []slowLookup
}

type slowLookup struct {
	Op, Answer, Memory string
	Coalesced, Stale   bool
	Start              *float64 `json:"start_ms"`
	Took               *float64 `json:"took_ms"`
	Steps              []slowStep
}

type slowStep struct {
	Tier, Answer string
	Start        float64 `json:"start_ms"`
	Took         float64 `json:"took_ms"`
}

// followEvery is how often new slow calls are asked for.
const followEvery = time.Second

func runSlow(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := newFlags("slow", "", stderr)
	http := httpFlag(flags)
	method := flags.String("method", "", "`NAME` of the method, as get_load")
	latest := flags.Bool("latest", false, "the latest that were slow or failed, not the slowest of the last hour")
	waterfall := flags.Bool("waterfall", false, "each call with the tiers that it asked, and when")
	follow := flags.Bool("follow", false, "new ones as they come, until interrupted")
	asJSON := flags.Bool("json", false, "one JSON document; with --follow one a call")
	limit := flags.Int("limit", 20, "at most `N`")
	if err := parseFlags(flags, args, 0); err != nil {
		return err
	}
	c, err := newClient(*http)
	if err != nil {
		return err
	}
	q := url.Values{"limit": {strconv.Itoa(*limit)}}
	setAll(q, map[string]string{"method": *method})
	if *latest || *follow {
		q.Set("order", "latest")
	}
	s := &slowView{c: c, q: q, w: stdout, json: *asJSON, waterfall: *waterfall}
	if *follow {
		return s.follow(ctx)
	}
	return s.once(ctx)
}

// slowView shows slow calls.
type slowView struct {
	c               *client
	q               url.Values
	w               io.Writer
	json, waterfall bool
	seen            []string // the calls of the answer before, when following
}

func (s *slowView) ask(ctx context.Context) ([]json.RawMessage, error) {
	var answer struct{ Calls []json.RawMessage }
	err := s.c.get(ctx, "/v1/slow", s.q, &answer)
	return answer.Calls, err
}

func (s *slowView) once(ctx context.Context) error {
	calls, err := s.ask(ctx)
	if err != nil {
		return err
	}
	if s.json {
		return writeJSON(s.w, map[string]any{"calls": calls})
	}
	if len(calls) == 0 {
		_, err := fmt.Fprintln(s.w, "no slow calls")
		return err
	}
	return s.write(calls)
}

// follow shows what was not in the answer before, oldest first.
func (s *slowView) follow(ctx context.Context) error {
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	for {
		calls, err := s.ask(ctx)
		if err != nil && ctx.Err() == nil {
			return err
		}
		var fresh []json.RawMessage
		var now []string
		for _, raw := range slices.Backward(calls) {
			if now = append(now, string(raw)); !slices.Contains(s.seen, string(raw)) {
				fresh = append(fresh, raw)
			}
		}
		s.seen = now
		for _, raw := range fresh {
			if err := s.writeOne(raw); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (s *slowView) writeOne(raw json.RawMessage) error {
	if s.json {
		_, err := fmt.Fprintf(s.w, "%s\n", raw)
		return err
	}
	return s.write([]json.RawMessage{raw})
}

func (s *slowView) write(raws []json.RawMessage) error {
	t := table{columns: []column{
		{title: "TIME"}, {title: "MS", right: true}, {title: "METHOD"}, {title: "JID"}, {title: "WHY"}, {title: "TIERS", least: 20},
	}}
	for _, raw := range raws {
		var k slowCall
		if err := s.c.decode(raw, &k); err != nil {
			return err
		}
		if s.waterfall {
			if err := writeWaterfall(s.w, &k); err != nil {
				return err
			}
			continue
		}
		t.add(local(k.Time), ms(k.Took), k.Method, string(k.JID), k.reason(), k.tiers())
	}
	if s.waterfall {
		return nil
	}
	return t.write(s.w, terminalWidth(s.w))
}

func ms(f float64) string { return strconv.FormatFloat(f, 'f', 3, 64) }

func (k *slowCall) reason() string {
	if k.Error != "" {
		return k.Why + ": " + k.Error
	}
	return k.Why
}

// tiers is what was asked, in short: memory miss, redis miss 0.31, embedded hit 1.20.
func (k *slowCall) tiers() string {
	var parts []string
	for _, l := range k.Lookups {
		if l.Memory != "skipped" {
			parts = append(parts, "memory "+l.Memory)
		}
		if l.Coalesced {
			parts = append(parts, "joined another")
		}
		for _, s := range l.Steps {
			parts = append(parts, fmt.Sprintf("%s %s %s", s.Tier, s.Answer, ms(s.Took)))
		}
		if l.Stale {
			parts = append(parts, "stale")
		}
	}
	return strings.Join(parts, ", ")
}

// barColumns is how wide the bar of a whole call is.
const barColumns = 40

// writeWaterfall writes a call with a bar for each lookup and each tier under it.
func writeWaterfall(w io.Writer, k *slowCall) error {
	var b strings.Builder
	line := func(indent int, name, answer string, start, took float64) {
		fmt.Fprintf(&b, "%-34s %10s ms  |%s|\n", shorten(harmless(strings.Repeat("  ", indent)+name+" "+answer), 34), ms(took),
			bar(start, took, k.Took))
	}
	fmt.Fprintf(&b, "%s  %s  %s\n", local(k.Time), harmless(string(k.JID)), k.reason())
	line(0, k.Method, "", 0, k.Took)
	for _, l := range k.Lookups {
		if l.Start == nil || l.Took == nil {
			line(1, l.Op, "memory "+l.Memory, 0, 0)
			continue
		}
		line(1, l.Op, l.Answer, *l.Start, *l.Took)
		for _, s := range l.Steps {
			line(2, s.Tier, s.Answer, s.Start, s.Took)
		}
	}
	_, err := io.WriteString(w, b.String()+"\n")
	return err
}

// bar is a span of a whole as a bar of barColumns, at least one mark long.
func bar(start, took, whole float64) string {
	if whole <= 0 {
		whole = 1
	}
	from := min(max(int(start/whole*barColumns), 0), barColumns-1)
	to := min(max(int((start+took)/whole*barColumns+0.5), from+1), barColumns)
	return strings.Repeat(" ", from) + strings.Repeat("=", to-from) + strings.Repeat(" ", barColumns-to)
}
