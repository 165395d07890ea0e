package cli

import (
	"context"
	"encoding/json"
	"flag"
	"net/url"
	"strconv"
	"time"
)

const (
	defaultCount = 100
	// pageSize is the most that the daemon gives at a time.
	pageSize = 1000
)

// listing is what the commands that show lists have in common: how many, of what time.
type listing struct {
	count    int
	all      bool
	from, to moment
	asJSON   bool
	http     *string
}

func newListing(flags *flag.FlagSet) *listing {
	l := &listing{from: moment{now: time.Now}, to: moment{now: time.Now}, http: httpFlag(flags)}
	flags.IntVar(&l.count, "limit", defaultCount, "at most `N`, the newest")
	flags.BoolVar(&l.all, "all", false, "all there are, however many")
	flags.Var(&l.from, "from", "not before `TIME`: a span before now (90s, 2h, 7d), a date, or RFC 3339")
	flags.Var(&l.to, "to", "before `TIME`")
	flags.BoolVar(&l.asJSON, "json", false, "one JSON document, for programs")
	return l
}

// query checks the flags and gives those that are parameters of the daemon.
func (l *listing) query() (url.Values, error) {
	if l.count < 1 {
		return nil, usageError("--limit %d: at least 1 is needed", l.count)
	}
	if !l.from.IsZero() && !l.to.IsZero() && !l.from.Before(l.to.Time) {
		return nil, usageError("--from %v is not before --to %v", &l.from, &l.to)
	}
	q := url.Values{}
	for name, m := range map[string]*moment{"from": &l.from, "to": &l.to} {
		if !m.IsZero() {
			q.Set(name, m.UTC().Format(time.RFC3339Nano))
		}
	}
	return q, nil
}

// collect asks for pages until there are enough rows, and gives them as they came, and whether
// there are more.
func (l *listing) collect(ctx context.Context, c *client, path, key string, q url.Values) (rows []json.RawMessage, more bool, err error) {
	rows = []json.RawMessage{} // an empty list is [] in JSON, not null
	for {
		want := pageSize
		if !l.all {
			want = min(pageSize, l.count-len(rows))
		}
		q.Set("limit", strconv.Itoa(want))
		var page map[string]json.RawMessage
		if err := c.get(ctx, path, q, &page); err != nil {
			return nil, false, err
		}
		var some []json.RawMessage
		var next *string
		if err := c.decode(page[key], &some); err != nil {
			return nil, false, err
		}
		if err := c.decode(page["next"], &next); err != nil {
			return nil, false, err
		}
		rows = append(rows, some...)
		if next == nil || (!l.all && len(rows) >= l.count) {
			return rows, next != nil, nil
		}
		q.Set("cursor", *next)
	}
}

// setAll sets the parameters that are not empty.
func setAll(q url.Values, values map[string]string) {
	for name, value := range values {
		if value != "" {
			q.Set(name, value)
		}
	}
}
