package server

import (
	"cmp"
	"net/http"
	"slices"
	"time"

	"github.com/tinylib/msgp/msgp"

	"saltern/job"
	"saltern/tiers"
)

// listMinions answers /v1/minions: what each minion did last, sorted by minion.
func (h *HTTP) listMinions(r *http.Request) (answer, error) {
	q := newQuery(r, "fun", "after", "limit")
	fun, after, limit := q.str("fun"), q.after(), q.limit()
	if err := q.done(); err != nil {
		return answer{}, err
	}
	all, err := h.o.Jobs.LastFunctions(r.Context(), fun)
	if err != nil {
		return answer{}, err
	}
	if after != "" {
		i, found := slices.BinarySearchFunc(all, after, func(l job.LastFunction, id job.Minion) int {
			return cmp.Compare(l.Minion, id)
		})
		if found {
			i++
		}
		all = all[i:]
	}
	next := ""
	if len(all) > limit {
		all = all[:limit]
		next = afterOf(all[limit-1].Minion)
	}
	return answer{next: nextAddress(r, "after", next), body: func(j *jsonWriter) {
		j.begin('{')
		j.key("minions")
		j.begin('[')
		for i := range all {
			j.item()
			j.lastFunction(&all[i])
		}
		j.end(']')
		j.next(next)
		j.end('}')
	}}, nil
}

func (j *jsonWriter) lastFunction(l *job.LastFunction) {
	j.begin('{')
	j.field("minion", string(l.Minion))
	j.field("fun", l.Fun)
	j.field("jid", string(l.JID))
	j.key("time")
	j.time(l.JobTime)
	j.key("failed")
	j.bool(l.Failed)
	j.key("seen")
	j.time(l.Seen)
	j.end('}')
}

// eventsAtOnce is how many events are read from the store in one call.
const eventsAtOnce = 50

// listEvents answers /v1/events. A page ends at its limit or once it has pageBytes of payload,
// whichever comes first, so that an answer takes bounded memory.
func (h *HTTP) listEvents(r *http.Request) (answer, error) {
	q, err := eventQuery(r)
	if err != nil {
		return answer{}, err
	}
	limit := q.Limit
	q.Limit = min(limit, eventsAtOnce)
	page, err := h.o.Jobs.Events(r.Context(), q)
	if err != nil {
		return answer{}, err
	}
	until := time.Now().Add(fillTime)
	for page.Next != "" && len(page.Events) < limit && payloadOf(page) < pageBytes && time.Now().Before(until) {
		q.Cursor, q.Limit = page.Next, min(limit-len(page.Events), eventsAtOnce)
		more, err := h.o.Jobs.Events(r.Context(), q)
		if err != nil {
			break // as in listJobs
		}
		page.Events, page.Next = append(page.Events, more.Events...), more.Next
	}
	return answer{next: nextAddress(r, "cursor", page.Next), body: func(j *jsonWriter) {
		j.begin('{')
		j.key("events")
		j.begin('[')
		for i := range page.Events {
			j.item()
			j.event(&page.Events[i])
		}
		j.end(']')
		j.next(page.Next)
		j.end('}')
	}}, nil
}

func payloadOf(p tiers.EventPage) int {
	n := 0
	for i := range p.Events {
		n += len(p.Events[i].Data)
	}
	return n
}

func (j *jsonWriter) event(e *job.Event) {
	j.begin('{')
	j.key("id")
	j.hex(e.ID[:])
	j.key("time")
	j.time(e.ID.Time())
	j.field("tag", e.Tag)
	j.field("master", e.Master)
	j.key("data")
	j.view(e.Data)
	j.end('}')
}

// joinMaps makes one packed map of two. What is no map comes out as it is, for the view to show as
// corrupt.
func joinMaps(a, b []byte) []byte {
	first, n, err := mapEntries(a)
	if err != nil {
		return a
	}
	second, m, err := mapEntries(b)
	if err != nil {
		return b
	}
	return append(append(msgp.AppendMapHeader(nil, n+m), first...), second...)
}
