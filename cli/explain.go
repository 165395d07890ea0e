package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"
)

// explainedTier is a tier of /v1/explain.
type explainedTier struct {
	Tier, Answer  string
	Error         *text
	Version       *json.Number
	Age           *float64 `json:"age_s"`
	Returns       *int
	Bytes         *int64
	TTL           *float64 `json:"ttl_s"`
	Stale, Behind bool
	Pending       *int
	Breakers      *struct{ Read, Write, List string }
	Took          float64 `json:"took_ms"`
}

func runExplain(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := newFlags("explain", "JID", stderr)
	http := httpFlag(flags)
	asJSON := flags.Bool("json", false, "one JSON document")
	if err := parseFlags(flags, args, 1); err != nil {
		return err
	}
	c, err := newClient(*http)
	if err != nil {
		return err
	}
	var answer json.RawMessage
	if err := c.get(ctx, "/v1/explain/"+url.PathEscape(flags.Arg(0)), nil, &answer); err != nil {
		return err
	}
	if *asJSON {
		return writeJSON(stdout, answer)
	}
	var e struct {
		Trace string
		Tiers []explainedTier
	}
	if err := c.decode(answer, &e); err != nil {
		return err
	}
	t := table{columns: []column{
		{title: "TIER"}, {title: "ANSWER"}, {title: "AGE"}, {title: "RETURNS", right: true}, {title: "BYTES", right: true},
		{title: "TTL"}, {title: "BREAKERS"}, {title: "MS", right: true}, {title: "NOTES", least: 20},
	}}
	for _, x := range e.Tiers {
		t.add(x.Tier, x.Answer, seconds(x.Age), known(x.Returns), known(x.Bytes), seconds(x.TTL), x.breakers(), ms(x.Took), x.notes())
	}
	if err := t.write(stdout, terminalWidth(stdout)); err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "trace %s\n", harmless(e.Trace))
	return err
}

func known[T any](v *T) string {
	if v == nil {
		return ""
	}
	return fmt.Sprint(*v)
}

// seconds is a time span as people read it.
func seconds(s *float64) string {
	if s == nil {
		return ""
	}
	return time.Duration(*s * float64(time.Second)).Round(time.Second).String()
}

// breakers are the states of a tier's breakers, in one word where all are the same.
func (x *explainedTier) breakers() string {
	b := x.Breakers
	switch {
	case b == nil:
		return ""
	case b.Read == b.Write && b.Write == b.List:
		return b.Read
	}
	return fmt.Sprintf("read %s, write %s, list %s", b.Read, b.Write, b.List)
}

func (x *explainedTier) notes() string {
	var notes []string
	if x.Stale {
		notes = append(notes, "kept for when no tier can be asked")
	}
	if x.Behind {
		notes = append(notes, "missed writes, is not asked")
	}
	if x.Pending != nil && *x.Pending > 0 {
		notes = append(notes, fmt.Sprintf("%d facts wait in the journal", *x.Pending))
	}
	if x.Error != nil {
		notes = append(notes, string(*x.Error))
	}
	return strings.Join(notes, "; ")
}
