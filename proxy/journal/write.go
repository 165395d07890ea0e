package journal

import (
	"context"
	"errors"
	"fmt"
	"time"

	"saltern/job"
	"saltern/tiers"
)

// sent is what became of sending an entry to the store.
type sent struct {
	outcomes []job.Outcome
	err      error
}

// Merge writes facts to the log and to the store at once, and answers by Options.Ack. Where the log
// acknowledges, the outcomes are all Stored: the store will know better, later. With AckAll an
// error may come for facts that are in the log and will be in the store.
func (s *Store) Merge(ctx context.Context, facts []job.Fact) ([]job.Outcome, error) {
	if len(facts) == 0 {
		return nil, nil
	}
	value := encode(facts)
	e := s.queue.add(facts, len(value), s.o.Quota, s.o.Now())
	if e == nil {
		return s.unjournaled(ctx, facts)
	}
	s.index.add(e, facts)
	toStore, toLog := make(chan sent, 1), make(chan error, 1)
	s.sends.Go(func() { toStore <- s.send(e, facts) })
	s.sends.Go(func() { toLog <- s.append(e, facts, value) })
	return s.acknowledge(ctx, len(facts), toStore, toLog)
}

// unjournaled writes facts for which the log has no room: the store has to take them.
func (s *Store) unjournaled(ctx context.Context, facts []job.Fact) ([]job.Outcome, error) {
	outcomes, err := s.under.Merge(ctx, facts)
	if err != nil && !refused(err) {
		return nil, fmt.Errorf("%w: the journal has reached its quota of %d bytes and %s cannot be written: %w",
			tiers.ErrFull, s.o.Quota, s.under.Name(), err)
	}
	return outcomes, err
}

// send gives an entry to the store. The caller may leave; the store's own time bounds it.
func (s *Store) send(e *entry, facts []job.Fact) sent {
	ctx, cancel := context.WithTimeout(context.Background(), s.o.WriteTimeout)
	defer cancel()
	outcomes, err := s.under.Merge(ctx, facts)
	switch {
	case err == nil, refused(err):
		// What is refused for ever is refused to the caller, and not kept.
		s.confirm(e, facts)
	case s.queue.wait(e):
		s.wake()
	default:
		s.confirm(e, facts) // the log does not have it either: it is refused
	}
	return sent{outcomes, err}
}

// refused says whether the store will never take what it was given.
func refused(err error) bool {
	return errors.Is(err, tiers.ErrTooLarge) || errors.Is(err, tiers.ErrInvalid)
}

func (s *Store) confirm(e *entry, facts []job.Fact) {
	now := s.o.Now()
	s.queue.confirm(e, now)
	s.index.remove(e, facts, now)
}

// append writes an entry to the log.
func (s *Store) append(e *entry, facts []job.Fact, value []byte) error {
	if err := s.log.append(e.seq, value); err != nil {
		if !s.queue.unwritten(e) {
			s.confirm(e, facts) // the store did not take it: it is refused
		}
		if errors.Is(err, tiers.ErrFull) {
			return fmt.Errorf("write the journal: %w", err)
		}
		return fmt.Errorf("%w: write the journal: %w", tiers.ErrUnavailable, err)
	}
	s.queue.written(e)
	s.wake()
	return nil
}

func (s *Store) acknowledge(
	ctx context.Context, n int, toStore <-chan sent, toLog <-chan error,
) ([]job.Outcome, error) {
	stored := make([]job.Outcome, n)
	switch s.o.Ack {
	case AckAll:
		r, err := await(ctx, toStore)
		if err = errors.Join(err, r.err); err != nil {
			return nil, err
		}
		logErr, err := await(ctx, toLog)
		return r.outcomes, errors.Join(err, logErr)
	case AckJournal:
		// Nothing but a refusal for ever, should it come first, is waited for from the store.
		logErr, err := await(ctx, toLog)
		select {
		case r := <-toStore:
			return r.either(stored, errors.Join(err, logErr))
		default:
			return stored, errors.Join(err, logErr)
		}
	default:
		return s.storeOrLog(ctx, stored, toStore, toLog)
	}
}

// storeOrLog waits for the store, for AckWait, and then for the log.
func (s *Store) storeOrLog(
	ctx context.Context, stored []job.Outcome, toStore <-chan sent, toLog <-chan error,
) ([]job.Outcome, error) {
	patience := time.NewTimer(s.o.AckWait)
	defer patience.Stop()
	var r sent
	select {
	case r = <-toStore:
		if r.err == nil || refused(r.err) {
			return r.outcomes, r.err
		}
		toStore = nil // it has answered
	case <-patience.C:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	select {
	case r = <-toStore:
		if r.err == nil || refused(r.err) {
			return r.outcomes, r.err
		}
		logErr, err := await(ctx, toLog)
		return r.either(stored, errors.Join(err, logErr))
	case logErr := <-toLog:
		if logErr != nil && toStore != nil {
			late, err := await(ctx, toStore)
			return late.either(stored, errors.Join(err, logErr))
		}
		return r.either(stored, logErr)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// either is the answer where one of the two has to have taken the facts.
func (r sent) either(stored []job.Outcome, logErr error) ([]job.Outcome, error) {
	switch {
	case r.outcomes != nil && r.err == nil, r.err != nil && refused(r.err):
		return r.outcomes, r.err
	case logErr == nil:
		return stored, nil
	default:
		return nil, errors.Join(logErr, r.err)
	}
}

func await[T any](ctx context.Context, from <-chan T) (T, error) {
	select {
	case v := <-from:
		return v, nil
	case <-ctx.Done():
		var zero T
		return zero, context.Cause(ctx)
	}
}
