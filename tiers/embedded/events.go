package embedded

import (
	"bytes"
	"context"
	"encoding/binary"
	"math"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"saltern/job"
	"saltern/tiers"
)

// mergeEvent stores an event, once for each id of a master.
func (m *merge) mergeEvent(e job.Event) (job.Outcome, error) {
	ref := eventRef{e.ID, e.Master}
	key := eventKey(e.ID, e.Master)
	old, found := m.events[ref]
	if !found {
		var err error
		if old, found, _, err = getFact[job.Event](m.s, m.s.db, key, tabEvent, ""); err != nil {
			return 0, err
		}
	}
	outcome := job.Stored
	if found {
		outcome = job.Repeat
		winner := job.MergeEvent(old, e)
		if bytes.Equal(job.Encode(winner), job.Encode(old)) {
			return outcome, nil
		}
		if old.Tag != e.Tag {
			if err := m.remove(tagKey(ref, old.Tag)); err != nil {
				return 0, err
			}
		}
	}
	if m.events == nil {
		m.events = make(map[eventRef]job.Event, 1)
	}
	m.events[ref] = e
	if err := m.set(key, job.Encode(e)); err != nil {
		return 0, err
	}
	return outcome, m.set(tagKey(ref, e.Tag), nil)
}

// maxEventBytes ends a page of events, whose data can be large.
const maxEventBytes = 8 << 20

// Events gives a page of events. A query by tag reads the index of tags; the work of one call is
// bounded, so that a page may be short and still have a Next.
func (s *Store) Events(ctx context.Context, q tiers.EventQuery) (tiers.EventPage, error) {
	if err := s.ready(ctx); err != nil {
		return tiers.EventPage{}, err
	}
	l := &eventListing{s: s, q: q, limit: limitOf(q.Limit)}
	if err := l.setBounds(); err != nil {
		return tiers.EventPage{}, err
	}
	snap := s.db.NewSnapshot()
	defer snap.Close()
	l.r = snap
	var err error
	if q.Tag == "" {
		err = l.byTime(ctx)
	} else {
		err = l.byTag(ctx)
	}
	return l.page, err
}

// eventListing is one page of events in the making.
type eventListing struct {
	s     *Store
	r     pebble.Reader
	q     tiers.EventQuery
	limit int
	// lower and upper are keys of events, without the first byte: lower included, upper not.
	lower, upper []byte
	page         tiers.EventPage
	bytes, looks int
}

func (l *eventListing) cursorKind() byte {
	if l.q.Oldest {
		return cursorOldestEvents
	}
	return cursorNewestEvents
}

func (l *eventListing) setBounds() error {
	bound := func(us uint64) []byte { return binary.BigEndian.AppendUint64(nil, us) }
	l.lower, l.upper = bound(0), append(bound(math.MaxUint64), bound(math.MaxUint64)...)
	if !l.q.From.IsZero() {
		l.lower = bound(ceilMicros(l.q.From))
	}
	if !l.q.To.IsZero() {
		l.upper = bound(ceilMicros(l.q.To))
	}
	if l.q.Cursor == "" {
		return nil
	}
	at, err := tiers.DecodeCursor(l.cursorKind(), l.q.Cursor, len(job.EventID{}))
	if err != nil {
		return err
	}
	if !l.q.Oldest && bytes.Compare(at, l.upper) < 0 {
		l.upper = at
	}
	if at := append(at, 0); l.q.Oldest && bytes.Compare(at, l.lower) > 0 {
		l.lower = at
	}
	return nil
}

// stopAt ends the page behind an event, of which it is known that others follow.
func (l *eventListing) stopAt(r eventRef) {
	l.page.Next = tiers.EncodeCursor(l.cursorKind(), append(bytes.Clone(r.id[:]), r.master...))
}

func (l *eventListing) full() bool { return l.enough() || l.looks >= maxLooks }

func (l *eventListing) enough() bool {
	return len(l.page.Events) >= l.limit || l.bytes >= maxEventBytes
}

// byTime walks the events themselves.
func (l *eventListing) byTime(ctx context.Context) (err error) {
	if bytes.Compare(l.lower, l.upper) >= 0 {
		return nil
	}
	it, err := l.r.NewIterWithContext(ctx, &pebble.IterOptions{
		LowerBound: append([]byte{tabEvent}, l.lower...),
		UpperBound: append([]byte{tabEvent}, l.upper...),
	})
	if err != nil {
		return unavailable(err)
	}
	defer func() {
		if cerr := it.Close(); cerr != nil {
			err = unavailable(cerr)
		}
	}()
	first, next := it.Last, it.Prev
	if l.q.Oldest {
		first, next = it.First, it.Next
	}
	var last eventRef
	for ok := first(); ok; ok = next() {
		if l.full() {
			l.stopAt(last)
			return nil
		}
		if l.looks++; l.looks%256 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		last = parseEventRef(it.Key()[1:])
		if l.q.Master != "" && !tiers.Match(l.q.Master, last.master) {
			continue
		}
		value, err := it.ValueAndErr()
		if err != nil {
			return nil // which Close gives
		}
		if e, ok := decodeFact[job.Event](l.s, tabEvent, "", bytes.Clone(value)); ok {
			l.add(e)
		}
	}
	return nil
}

func (l *eventListing) add(e job.Event) {
	l.page.Events = append(l.page.Events, e)
	l.bytes += e.Size()
}

// byTag walks the buckets of the tag index. In a bucket the tags are sorted before the times, so all
// that match are read, and sorted, of one bucket at a time.
func (l *eventListing) byTag(ctx context.Context) error {
	if bytes.Compare(l.lower, l.upper) >= 0 {
		return nil
	}
	bucket, found, err := l.nextBucket(l.firstBucket(), true)
	for ; found && err == nil; bucket, found, err = l.nextBucket(bucket, false) {
		var refs []eventRef
		if refs, err = l.matching(ctx, bucket); err != nil {
			return err
		}
		for i, r := range refs {
			if l.enough() { // not before the first: the loop would have ended
				l.stopAt(refs[i-1])
				return nil
			}
			if err := l.addByRef(r); err != nil {
				return err
			}
		}
		if len(refs) > l.limit {
			l.stopAt(refs[len(refs)-1]) // the bucket may have more
			return nil
		}
		if l.full() {
			l.stopAt(l.bucketEnd(bucket))
			return nil
		}
	}
	return err
}

// bucketEnd is a position behind all events of a bucket, in the order of the list.
func (l *eventListing) bucketEnd(bucket uint64) eventRef {
	var r eventRef
	if l.q.Oldest {
		last := uint64(math.MaxUint64)
		if bucket < last/bucketMicros {
			last = (bucket+1)*bucketMicros - 1
		}
		binary.BigEndian.PutUint64(r.id[:], last)
		copy(r.id[8:], "\xff\xff\xff\xff\xff\xff\xff\xff")
		// No master's name begins with these: names are at most as large as UTF-8 goes.
		r.master = "\xff\xff\xff\xff"
		return r
	}
	binary.BigEndian.PutUint64(r.id[:], bucket*bucketMicros)
	return r
}

func (l *eventListing) addByRef(r eventRef) error {
	e, found, _, err := getFact[job.Event](l.s, l.r, eventKey(r.id, r.master), tabEvent, "")
	// A tag may be found that is only alike in its beginning, or whose event has expired.
	if err == nil && found && tiers.Match(l.q.Tag, e.Tag) {
		l.add(e)
	}
	return err
}

func (l *eventListing) firstBucket() uint64 {
	at := l.upper
	if l.q.Oldest {
		at = l.lower
	}
	return binary.BigEndian.Uint64(at) / bucketMicros
}

// nextBucket gives the next bucket with any event from here on; including this one if asked.
func (l *eventListing) nextBucket(bucket uint64, including bool) (uint64, bool, error) {
	it, err := l.r.NewIter(&pebble.IterOptions{
		LowerBound: bucketKey(binary.BigEndian.Uint64(l.lower) / bucketMicros),
		UpperBound: bucketKey(binary.BigEndian.Uint64(l.upper)/bucketMicros + 1),
	})
	if err != nil {
		return 0, false, unavailable(err)
	}
	var found bool
	switch {
	case l.q.Oldest && including:
		found = it.SeekGE(bucketKey(bucket))
	case l.q.Oldest:
		found = it.SeekGE(bucketKey(bucket + 1))
	case including:
		found = it.SeekLT(bucketKey(bucket + 1))
	default:
		found = it.SeekLT(bucketKey(bucket))
	}
	if found {
		bucket = binary.BigEndian.Uint64(it.Key()[1:])
	}
	l.looks++
	if err := it.Close(); err != nil {
		return 0, false, unavailable(err)
	}
	return bucket, found, nil
}

// matching gives the events of a bucket whose tags match, in the order of the list, and no more of
// them than a page can take and one.
func (l *eventListing) matching(ctx context.Context, bucket uint64) ([]eventRef, error) {
	var refs []eventRef
	most := l.limit + 1
	prefix := appendEscapedPrefix(bucketKey(bucket), cutTag(tiers.LiteralPrefix(l.q.Tag)))
	err := l.s.scan(ctx, l.r, prefix, func(key, _ []byte) error {
		l.looks++
		tag, r := parseTagKey(key)
		at := append(bytes.Clone(r.id[:]), r.master...)
		if bytes.Compare(at, l.lower) < 0 || bytes.Compare(at, l.upper) >= 0 ||
			len(tag) < maxTag && !tiers.Match(l.q.Tag, tag) ||
			l.q.Master != "" && !tiers.Match(l.q.Master, r.master) {
			return nil
		}
		if refs = append(refs, r); len(refs) >= 2*most {
			refs = l.sorted(refs)[:most]
		}
		return nil
	})
	refs = l.sorted(refs)
	return refs[:min(len(refs), most)], err
}

func cutTag(tag string) string { return tag[:min(len(tag), maxTag)] }

func (l *eventListing) sorted(refs []eventRef) []eventRef {
	slices.SortFunc(refs, func(a, b eventRef) int {
		if l.q.Oldest {
			return a.compare(b)
		}
		return b.compare(a)
	})
	return refs
}
