package embedded

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"

	"github.com/cockroachdb/pebble/v2"

	"saltern/job"
)

// candidate is a job that a source found, to be looked at.
type candidate struct {
	at    position
	class class
	// value is the stored summary, until the source advances; nil where the index found the job.
	value []byte
}

// source gives the jobs of one class, newest first. current is nil at the end.
type source interface {
	current() *candidate
	// advance goes on to the next job and gives how many keys it had to look at beside.
	advance() int
	close() error
}

// sources merges the sources of all classes.
type sources []source

// sources opens one for each class.
func (l *listing) sources(ctx context.Context) (sources, error) {
	var all sources
	t, byTerm := l.term()
	for _, c := range l.s.classes.all() {
		open := l.openSummaries
		if byTerm {
			open = func(ctx context.Context, c class) (source, error) { return l.openTerm(ctx, c, t) }
		}
		src, err := open(ctx, c)
		if err != nil {
			return nil, unavailable(errors.Join(err, all.close()))
		}
		all = append(all, src)
	}
	return all, nil
}

// newest is the newest job of all sources, nil at the end. There are few classes, so it looks at
// each of them.
func (ss sources) newest() *candidate {
	var best *candidate
	for _, src := range ss {
		if c := src.current(); c != nil && (best == nil || c.at.newer(best.at)) {
			best = c
		}
	}
	return best
}

// advance moves the source of a candidate on.
func (ss sources) advance(c *candidate) int {
	for _, src := range ss {
		if src.current() == c {
			return src.advance()
		}
	}
	return 0
}

func (ss sources) close() error {
	var errs []error
	for _, src := range ss {
		errs = append(errs, src.close())
	}
	return errors.Join(errs...)
}

// summaries walks the summaries of a class backwards.
type summaries struct {
	it *pebble.Iterator
	c  *candidate
}

func (l *listing) openSummaries(ctx context.Context, c class) (source, error) {
	it, err := l.r.NewIterWithContext(ctx, &pebble.IterOptions{
		LowerBound: summaryKey(place{c, l.from}, ""),
		UpperBound: summaryKey(place{c, l.before.time}, l.before.jid),
	})
	if err != nil {
		return nil, err
	}
	s := &summaries{it: it}
	s.take(it.Last())
	return s, nil
}

func (s *summaries) take(ok bool) {
	if !ok {
		s.c = nil // at the end, or with an error, which close gives
		return
	}
	p, jid := parseSummaryKey(s.it.Key())
	value, err := s.it.ValueAndErr()
	if err != nil {
		s.c = nil
		return
	}
	s.c = &candidate{position{p.time, jid}, p.class, value}
}

func (s *summaries) current() *candidate { return s.c }

func (s *summaries) advance() int {
	s.take(s.it.Prev())
	return 0
}

func (s *summaries) close() error { return s.it.Close() }

// termRows walks the index rows of one term in a class backwards, day by day. Days without any job
// of the class cost nothing, days without one of the term a seek.
type termRows struct {
	it     *pebble.Iterator
	class  class
	t      term
	from   uint64
	before position
	run    []byte // the beginning of the term's rows in the day that it is at
	c      *candidate
}

func (l *listing) openTerm(ctx context.Context, c class, t term) (source, error) {
	lastDay := min(l.before.time/dayMicros, 1<<32-2)
	it, err := l.r.NewIterWithContext(ctx, &pebble.IterOptions{
		LowerBound: dayKey(c, l.from/dayMicros), UpperBound: dayKey(c, lastDay+1),
	})
	if err != nil {
		return nil, err
	}
	s := &termRows{it: it, class: c, t: t, from: l.from, before: l.before}
	s.seekDay(lastDay)
	return s, nil
}

// seekDay goes to the newest row of the term in a day or one before, and gives how many days it saw.
func (s *termRows) seekDay(day uint64) int {
	s.c = nil
	for looked := 1; ; looked++ {
		s.run = runKey(s.class, day, s.t.kind, s.t.value)
		end := after(s.run)
		if s.before.time/dayMicros == day {
			end = binary.BigEndian.AppendUint64(bytes.Clone(s.run), s.before.time)
			end = append(end, s.before.jid...)
		}
		if !s.it.SeekLT(end) {
			return looked
		}
		if s.take() {
			return looked
		}
		if parseDay(s.it.Key()) == day && !s.it.SeekLT(dayKey(s.class, day)) {
			return looked
		}
		day = parseDay(s.it.Key())
	}
}

// take makes the row that the iterator is at the current one, if it is of the term and day.
func (s *termRows) take() bool {
	rest, ok := bytes.CutPrefix(s.it.Key(), s.run)
	if !ok || len(rest) < 8 {
		return false
	}
	at := position{binary.BigEndian.Uint64(rest), job.JID(rest[8:])}
	if at.time < s.from {
		s.c = nil
		return true
	}
	s.c = &candidate{at: at, class: s.class}
	return true
}

func (s *termRows) current() *candidate { return s.c }

func (s *termRows) advance() int {
	if !s.it.Prev() {
		s.c = nil
		return 0
	}
	if s.take() {
		return 0
	}
	day := parseDay(s.run)
	if parseDay(s.it.Key()) == day && !s.it.SeekLT(dayKey(s.class, day)) {
		s.c = nil
		return 1
	}
	return s.seekDay(parseDay(s.it.Key()))
}

func (s *termRows) close() error { return s.it.Close() }
