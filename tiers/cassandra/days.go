package cassandra

import (
	"context"
	"fmt"
	"time"
)

// daysWith gives the days that have jobs or events, from one day to another, both included, newest first.
func (s *Store) daysWith(ctx context.Context, kind string, from, to time.Time) ([]time.Time, error) {
	session, err := s.session()
	if err != nil {
		return nil, err
	}
	iter := session.Query(selectDays, kind, dayOf(from), dayOf(to)).
		Consistency(s.reads).IterContext(ctx)
	var days []time.Time
	var day time.Time
	for iter.Scan(&day) {
		// A day has a row for each class.
		if n := len(days); n == 0 || !days[n-1].Equal(day) {
			days = append(days, day)
		}
	}
	if err := iter.Close(); err != nil {
		return nil, s.fail(ctx, fmt.Sprintf("read of the days with %s", kind), err)
	}
	return days, nil
}

// The days that Cassandra's date can hold and Go's time too, with room on both sides.
var (
	firstDay = time.Date(-9999, 1, 1, 0, 0, 0, 0, time.UTC)
	lastDay  = time.Date(290000, 1, 1, 0, 0, 0, 0, time.UTC)
)

// orDay is t, or another time where t is zero.
func orDay(t, other time.Time) time.Time {
	if t.IsZero() {
		return other
	}
	return t
}
