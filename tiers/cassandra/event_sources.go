package cassandra

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/apache/cassandra-gocql-driver/v2"

	"saltern/job"
	"saltern/tiers"
)

// eventSlot is a slot with the masters that have events in it.
type eventSlot struct {
	slot    int64
	masters []string
}

func (l *eventListing) slots(ctx context.Context, day time.Time) ([]eventSlot, error) {
	iter := l.session.Query(selectSlots, day).Consistency(l.s.reads).IterContext(ctx)
	var slots []eventSlot
	var slot int64
	var master string
	first, last := slotOf(l.clampDay(l.lower)), slotOf(l.clampDay(l.upper))
	for iter.Scan(&slot, &master) {
		if slot < first || slot > last {
			continue
		}
		if n := len(slots); n == 0 || slots[n-1].slot != slot {
			slots = append(slots, eventSlot{slot: slot})
		}
		at := &slots[len(slots)-1]
		at.masters = append(at.masters, master)
	}
	if err := iter.Close(); err != nil {
		return nil, l.s.fail(ctx, "read of events", err)
	}
	if l.q.Oldest {
		slices.Reverse(slots)
	}
	return slots, nil
}

// eventSource are the events of one master in a slot.
type eventSource struct {
	iter   *gocql.Iter
	master string
	row    eventRow
	ok     bool
	// ahead is the first row of the next event, where there is one.
	ahead   eventRow
	isAhead bool
}

type eventRow struct {
	ref     eventRef
	version int64
	data    []byte
}

// advance reads the rows of the next event: one for each time that it was sent, of which the first stays.
func (l *eventListing) advance(ctx context.Context, src *eventSource) error {
	src.row, src.ok, src.isAhead = src.ahead, src.isAhead, false
	for {
		row := eventRow{ref: eventRef{master: src.master}}
		var id []byte // the driver reuses the bytes that it is given
		if !src.iter.Scan(&id, &row.version, &row.data) {
			return l.s.fail(ctx, "read of events", src.iter.Close())
		}
		copy(row.ref.id[:], id)
		if src.ok && row.ref != src.row.ref {
			src.ahead, src.isAhead = row, true
			return nil
		}
		if !src.ok || row.version < src.row.version {
			src.row, src.ok = row, true
		}
	}
}

// read gives the event of a row if its tag is asked for. One that is corrupt is missing.
func (l *eventListing) read(ctx context.Context, src *eventSource) (e job.Event, ok bool, err error) {
	value := src.row.data
	var version job.Version
	if isManifest(value) {
		var m manifest
		if m, err = decodeManifest(value); err == nil {
			value, version = m.head, m.version
		}
	}
	var fact job.Fact
	if err == nil {
		fact, err = job.Decode(value)
	}
	if err == nil {
		if e, ok = fact.(job.Event); !ok {
			err = job.ErrCorrupt
		}
	}
	if err == nil && l.q.Tag != "" && !tiers.Match(l.q.Tag, e.Tag) {
		return e, false, nil
	}
	if err == nil && isManifest(src.row.data) {
		if value, err = l.s.unpack(ctx, place{"event/" + src.master, string(src.row.ref.id[:]), version}, src.row.data); err == nil {
			if fact, err = job.Decode(value); err == nil {
				e, ok = fact.(job.Event)
			}
		}
	}
	if errors.Is(err, job.ErrCorrupt) {
		l.s.dropCorrupt("events", "", err)
		return e, false, nil
	}
	return e, ok, err
}
