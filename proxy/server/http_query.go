package server

import (
	"encoding/base64"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"saltern/job"
	"saltern/tiers"
)

const (
	defaultLimit = 100
	maxHTTPLimit = 1000
)

// query reads the parameters of a request. After the first error every further read gives a zero
// value; done says what was wrong.
type query struct {
	values url.Values
	known  []string
	err    error
}

// newQuery takes the parameters of r, all of which have to be among known.
func newQuery(r *http.Request, known ...string) *query {
	q := &query{known: known}
	if q.values, q.err = url.ParseQuery(r.URL.RawQuery); q.err != nil {
		q.err = fmt.Errorf("%w: query: %w", tiers.ErrInvalid, q.err)
		return q
	}
	for _, name := range slices.Sorted(maps.Keys(q.values)) {
		switch {
		case !slices.Contains(known, name):
			q.fail("unknown parameter %q; known are %s", clip(name), strings.Join(known, ", "))
		case len(q.values[name]) > 1:
			q.fail("parameter %s is there %d times", name, len(q.values[name]))
		}
	}
	return q
}

func (q *query) fail(format string, args ...any) {
	if q.err == nil {
		q.err = fmt.Errorf("%w: %s", tiers.ErrInvalid, fmt.Sprintf(format, args...))
	}
}

func (q *query) done() error { return q.err }

func (q *query) str(name string) string { return q.values.Get(name) }

// oneOf reads a word; not there, or empty, it is the first.
func (q *query) oneOf(name string, words ...string) string {
	word := q.str(name)
	if word == "" {
		return words[0]
	}
	if !slices.Contains(words, word) {
		q.fail("%s is %q, not one of %s", name, clip(word), strings.Join(slices.DeleteFunc(words, isEmpty), ", "))
	}
	return word
}

func isEmpty(s string) bool { return s == "" }

func (q *query) limit() int {
	text := q.str("limit")
	if text == "" {
		return defaultLimit
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maxHTTPLimit {
		q.fail("limit is %q, not a number from 1 to %d", clip(text), maxHTTPLimit)
	}
	return n
}

// time reads RFC 3339 or seconds since 1970.
func (q *query) time(name string) time.Time {
	text := q.str(name)
	if text == "" {
		return time.Time{}
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t.UTC()
	}
	seconds, err := strconv.ParseFloat(text, 64)
	if err != nil || math.Abs(seconds) > 1e11 || seconds != seconds {
		q.fail("%s is %q, neither RFC 3339 (2026-01-31T12:00:00Z; a + is written %%2B) nor seconds since 1970",
			name, clip(text))
		return time.Time{}
	}
	whole, fraction := math.Modf(seconds)
	return time.Unix(int64(whole), int64(fraction*1e9)).UTC()
}

// jobFilter reads the filters of /v1/jobs.
func jobFilter(r *http.Request) (tiers.Filter, error) {
	q := newQuery(r, "fun", "tgt", "user", "minion", "state", "master", "from", "to", "limit", "cursor")
	f := tiers.Filter{
		Fun: q.str("fun"), Target: q.str("tgt"), User: q.str("user"), Master: q.str("master"),
		Minion: job.Minion(q.str("minion")),
		State: job.State(q.oneOf("state", "", string(job.Running), string(job.Complete), string(job.Failed),
			string(job.Incomplete))),
		From: q.time("from"), To: q.time("to"),
		Limit: q.limit(), Cursor: q.str("cursor"),
	}
	return f, q.done()
}

// eventQuery reads the filters of /v1/events.
func eventQuery(r *http.Request) (tiers.EventQuery, error) {
	q := newQuery(r, "tag", "master", "from", "to", "order", "limit", "cursor")
	e := tiers.EventQuery{
		Tag: q.str("tag"), Master: q.str("master"), From: q.time("from"), To: q.time("to"),
		Oldest: q.oneOf("order", "newest", "oldest") == "oldest",
		Limit:  q.limit(), Cursor: q.str("cursor"),
	}
	return e, q.done()
}

// jidOf is the job that the address names.
func jidOf(r *http.Request) (job.JID, error) {
	jid := job.JID(r.PathValue("jid"))
	if jid == "" || len(jid) > job.MaxJIDBytes {
		return "", fmt.Errorf("%w: a jid has 1 to %d bytes", tiers.ErrInvalid, job.MaxJIDBytes)
	}
	return jid, nil
}

// Minion ids go into "next" and come back in "after" as they are where they are plain ASCII, and in
// base64 behind afterMark where they are not: JSON and URLs do not carry any bytes unharmed through
// any client.
const afterMark = "~"

func afterOf(id job.Minion) string {
	odd := func(r rune) bool { return r <= ' ' || r >= 0x7f }
	if !strings.HasPrefix(string(id), afterMark) && !strings.ContainsFunc(string(id), odd) {
		return string(id)
	}
	return afterMark + base64.RawURLEncoding.EncodeToString([]byte(id))
}

// after reads what afterOf wrote.
func (q *query) after() job.Minion {
	text := q.str("after")
	coded, isCoded := strings.CutPrefix(text, afterMark)
	if !isCoded {
		return job.Minion(text)
	}
	id, err := base64.RawURLEncoding.DecodeString(coded)
	if err != nil {
		q.fail("after is %q, which no answer had as its next", clip(text))
	}
	return job.Minion(id)
}

// nextAddress is the address of this request with one parameter changed, empty where there is no
// next.
func nextAddress(r *http.Request, param, next string) string {
	if next == "" {
		return ""
	}
	values := r.URL.Query()
	values.Set(param, next)
	return r.URL.EscapedPath() + "?" + values.Encode()
}
