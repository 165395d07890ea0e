package cassandra

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"math"
	"slices"
	"time"

	"github.com/apache/cassandra-gocql-driver/v2"

	"saltern/job"
	"saltern/tiers"
)

type slotKey struct {
	slot   int64
	master string
}

// event writes an event into the slot of its time. A resend has a row of its own, and readers take the first.
func (w *writing) event(f job.Event) error {
	at := f.ID.Time()
	slot, ttl := slotOf(at), w.s.eventTTL(at)
	master := registerKey(f.Master)
	cell, err := w.s.pack(w.ctx, place{"event/" + f.Master, string(f.ID[:]), f.Version}, job.Encode(f), inlineRow, ttl,
		func() []byte { h := f; h.Data = nil; return job.Encode(h) }, len(f.Data))
	if err != nil {
		return err
	}
	w.add(partition("e", slot, 0)+master, len(cell), insertEvent, master, slot, f.ID[:], int64(f.Version), cell, ttl, stamp(f.Version))
	key := slotKey{slot, f.Master}
	if _, noted := w.s.slots.get(key); noted {
		return nil
	}
	day := dayOf(slotTime(slot))
	// As long as the last event of the slot can live.
	whole := w.s.eventTTL(slotTime(slot + 2))
	w.add(partition("s", day.Unix(), 0), len(master), insertSlot, day, slot, master, whole, w.s.o.Now().UnixMicro())
	w.acknowledged = append(w.acknowledged, func() { w.s.slots.put(key, struct{}{}) })
	w.day(kindEvents, day, life{class: eventClass(w.s.o.EventKeep)})
	return nil
}

// eventClass is the class of the days of events.
func eventClass(keep time.Duration) int {
	_, exp := math.Frexp(keep.Seconds())
	return exp
}

const (
	defaultLimit = 100
	maxLimit     = 1000
	// maxLooks is how many rows one call looks at before it gives a short page.
	maxLooks = 20_000
	// maxPageBytes ends a page of values that can be large.
	maxPageBytes = 8 << 20
	eventRows    = 200
)

func limitOf(asked int) int {
	if asked <= 0 {
		return defaultLimit
	}
	return min(asked, maxLimit)
}

// Events gives a page of events. The work of one call is bounded, so that a page may be short and still have a Next.
func (s *Store) Events(ctx context.Context, q tiers.EventQuery) (tiers.EventPage, error) {
	session, err := s.session()
	if err != nil {
		return tiers.EventPage{}, err
	}
	l := &eventListing{s: s, session: session, q: q, limit: limitOf(q.Limit)}
	if err := l.setBounds(); err != nil {
		return tiers.EventPage{}, err
	}
	if err := l.run(ctx); err != nil {
		return tiers.EventPage{}, err
	}
	return l.page, nil
}

// eventRef is the place of an event in the list.
type eventRef struct {
	id     job.EventID
	master string
}

func (r eventRef) compare(o eventRef) int {
	return cmp.Or(bytes.Compare(r.id[:], o.id[:]), cmp.Compare(r.master, o.master))
}

// eventListing is one page of events in the making.
type eventListing struct {
	s       *Store
	session *gocql.Session
	q       tiers.EventQuery
	limit   int
	// lower and upper bound the ids, lower included, upper too; past is what the page begins behind.
	lower, upper job.EventID
	past         *eventRef
	page         tiers.EventPage
	bytes, looks int
	last         eventRef
}

func (l *eventListing) cursorKind() byte {
	if l.q.Oldest {
		return cursorOldestEvents
	}
	return cursorNewestEvents
}

func (l *eventListing) setBounds() error {
	for i := range l.upper {
		l.upper[i] = 0xff
	}
	if !l.q.From.IsZero() {
		binary.BigEndian.PutUint64(l.lower[:], uint64(ceilMicros(l.q.From)))
	}
	if !l.q.To.IsZero() {
		binary.BigEndian.PutUint64(l.upper[:], uint64(ceilMicros(l.q.To)-1))
	}
	if l.q.Cursor == "" {
		return nil
	}
	b, err := tiers.DecodeCursor(l.cursorKind(), l.q.Cursor, len(job.EventID{}))
	if err != nil {
		return err
	}
	past := eventRef{job.EventID(b[:16]), string(b[16:])}
	l.past = &past
	if l.q.Oldest && bytes.Compare(past.id[:], l.lower[:]) > 0 {
		l.lower = past.id
	}
	if !l.q.Oldest && bytes.Compare(past.id[:], l.upper[:]) < 0 {
		l.upper = past.id
	}
	return nil
}

// run walks the days, their slots, and the events of each slot.
func (l *eventListing) run(ctx context.Context) error {
	if bytes.Compare(l.lower[:], l.upper[:]) > 0 {
		return nil
	}
	days, err := l.s.daysWith(ctx, kindEvents, l.clampDay(l.lower), l.clampDay(l.upper))
	if err != nil {
		return err
	}
	if l.q.Oldest {
		slices.Reverse(days)
	}
	for _, day := range days {
		slots, err := l.slots(ctx, day)
		if err != nil {
			return err
		}
		for _, slot := range slots {
			full, err := l.slot(ctx, slot)
			if err != nil || full {
				return err
			}
		}
	}
	return nil
}

// clampDay is the time of an id, as far as there are days.
func (l *eventListing) clampDay(id job.EventID) time.Time {
	us := binary.BigEndian.Uint64(id[:8])
	if us > uint64(lastDay.UnixMicro()) {
		return lastDay
	}
	return time.UnixMicro(int64(us)).UTC()
}

// slot adds the events of a slot and says whether the page is full.
func (l *eventListing) slot(ctx context.Context, slot eventSlot) (full bool, err error) {
	var sources []*eventSource
	defer func() {
		for _, src := range sources {
			_ = src.iter.Close() // its error was taken when its rows ended
		}
	}()
	cql := selectNewestEvents
	if l.q.Oldest {
		cql = selectOldestEvents
	}
	for _, key := range slot.masters {
		master := key[1:]
		if l.q.Master != "" && !tiers.Match(l.q.Master, master) {
			continue
		}
		src := &eventSource{master: master}
		src.iter = l.session.Query(cql, key, slot.slot, l.lower[:], l.upper[:]).Consistency(l.s.reads).
			PageSize(min(l.limit+1, eventRows)).IterContext(ctx)
		sources = append(sources, src)
		if err := l.advance(ctx, src); err != nil {
			return false, err
		}
	}
	for {
		src := l.first(sources)
		if src == nil {
			return false, nil
		}
		if err := l.take(ctx, src); err != nil || l.page.Next != "" {
			return true, err
		}
		if err := l.advance(ctx, src); err != nil {
			return false, err
		}
	}
}

func (l *eventListing) first(sources []*eventSource) *eventSource {
	var first *eventSource
	for _, src := range sources {
		if !src.ok {
			continue
		}
		if first == nil || (src.row.ref.compare(first.row.ref) < 0) == l.q.Oldest {
			first = src
		}
	}
	return first
}

// take adds an event, or ends the page before it.
func (l *eventListing) take(ctx context.Context, src *eventSource) error {
	if l.past != nil {
		c := src.row.ref.compare(*l.past)
		if c == 0 || (c < 0) == l.q.Oldest {
			return nil
		}
	}
	if len(l.page.Events) >= l.limit || l.bytes >= maxPageBytes || l.looks >= maxLooks {
		l.page.Next = tiers.EncodeCursor(l.cursorKind(), append(bytes.Clone(l.last.id[:]), l.last.master...))
		return nil
	}
	l.looks++
	l.last = src.row.ref
	e, ok, err := l.read(ctx, src)
	if err != nil || !ok {
		return err
	}
	l.page.Events = append(l.page.Events, e)
	l.bytes += e.Size()
	return nil
}
