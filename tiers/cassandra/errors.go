package cassandra

import (
	"context"
	"errors"
	"fmt"

	"github.com/apache/cassandra-gocql-driver/v2"

	"saltern/tiers"
)

// fail says what was being done when the driver gave an error, and makes it one that callers decide on. The
// caller's own cancellation or deadline stays what it is.
func (s *Store) fail(ctx context.Context, doing string, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", doing, ctx.Err())
	}
	s.link.failed(err, s.o.Now())
	kind := classify(err)
	if errors.Is(err, kind) {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return fmt.Errorf("%s: %w: %w", doing, kind, err)
}

// classify tells a store that did not answer in its time from one that could not be asked. What the store
// refused is counted among the latter: it says something about the store (its schema, its rights, its
// load), and the same write succeeds once that is mended.
func classify(err error) error {
	for _, known := range []error{tiers.ErrTimeout, tiers.ErrUnavailable, tiers.ErrInvalid, tiers.ErrTooLarge, tiers.ErrNotFound} {
		if errors.Is(err, known) {
			return known
		}
	}
	var write *gocql.RequestErrWriteTimeout
	var read *gocql.RequestErrReadTimeout
	switch {
	case errors.Is(err, gocql.ErrTimeoutNoResponse),
		errors.Is(err, context.DeadlineExceeded), errors.As(err, &write), errors.As(err, &read):
		return tiers.ErrTimeout
	case errors.Is(err, gocql.ErrFrameTooBig):
		return tiers.ErrTooLarge
	default:
		return tiers.ErrUnavailable
	}
}

// lost says whether an error may be that of a session without a living connection. A connection into the void gives
// timeouts for as long as six heartbeats take; keepSession finds that out sooner.
func lost(err error) bool {
	return errors.Is(err, gocql.ErrNoConnections) || errors.Is(err, gocql.ErrSessionClosed) ||
		errors.Is(err, gocql.ErrConnectionClosed) ||
		errors.Is(err, gocql.ErrTimeoutNoResponse)
}
