package journal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"saltern/job"
	"saltern/telemetry"
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
	start := telemetry.Now()
	toStore, toLog := make(chan sent, 1), make(chan error, 1)
	s.sends.Go(func() { toStore <- s.send(e, facts) })
	s.sends.Go(func() { toLog <- s.append(e, facts, value) })
	outcomes, by, err := s.acknowledge(ctx, len(facts), toStore, toLog)
	if err == nil {
		by.Add(1)
	}
	if by == &s.byLog && s.o.Ack != AckJournal {
		// Worth a trace: the replay will complete what this write began.
		telemetry.StepsOf(ctx).Add(telemetry.Step{Tier: telemetry.Journal, Start: start, Took: telemetry.Now() - start})
	}
	return outcomes, err
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
	ended := s.live.begin()
	outcomes, err := s.under.Merge(ctx, facts)
	ended()
	r := sent{outcomes, err}
	switch {
	case r.final():
		// What is refused for ever is refused to the caller, and not kept.
		s.confirm(e, facts)
	case s.queue.wait(e):
		s.wake()
	default:
		s.confirm(e, facts) // the log does not have it either: it is refused
	}
	return r
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

// acknowledge waits for what acknowledges a write, and gives the count of those.
func (s *Store) acknowledge(
	ctx context.Context, n int, toStore <-chan sent, toLog <-chan error,
) ([]job.Outcome, *atomic.Uint64, error) {
	stored := make([]job.Outcome, n)
	switch s.o.Ack {
	case AckAll:
		r, err := await(ctx, toStore)
		if err = cmp.Or(err, r.err); err != nil {
			return nil, nil, err
		}
		logErr, err := await(ctx, toLog)
		return r.outcomes, &s.byStore, cmp.Or(err, logErr)
	case AckJournal:
		logErr, err := await(ctx, toLog)
		select {
		case r := <-toStore:
			if r.final() {
				return r.outcomes, &s.byStore, r.err
			}
		default: // it is not waited for
		}
		return stored, &s.byLog, cmp.Or(err, logErr)
	default:
		return s.storeOrLog(ctx, stored, toStore, toLog)
	}
}

// storeOrLog waits for the store, for AckWait, and then for the log.
func (s *Store) storeOrLog(
	ctx context.Context, stored []job.Outcome, toStore <-chan sent, toLog <-chan error,
) ([]job.Outcome, *atomic.Uint64, error) {
	patience := time.NewTimer(s.o.AckWait)
	defer patience.Stop()
	select {
	case r := <-toStore:
		return s.orLog(ctx, r, stored, toLog)
	case <-patience.C:
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	}
	select {
	case r := <-toStore:
		return s.orLog(ctx, r, stored, toLog)
	case logErr := <-toLog:
		if logErr == nil {
			return stored, &s.byLog, nil
		}
		r, err := await(ctx, toStore)
		if err == nil && r.final() {
			return r.outcomes, &s.byStore, r.err
		}
		return nil, nil, fmt.Errorf("%w; %w", logErr, cmp.Or(err, r.err))
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	}
}

// final says whether the store took the facts, or never will.
func (r sent) final() bool { return r.err == nil || refused(r.err) }

// orLog is the answer after the store's: where that is not final, the log has to have the facts.
func (s *Store) orLog(
	ctx context.Context, r sent, stored []job.Outcome, toLog <-chan error,
) ([]job.Outcome, *atomic.Uint64, error) {
	if r.final() {
		return r.outcomes, &s.byStore, r.err
	}
	logErr, err := await(ctx, toLog)
	if err = cmp.Or(err, logErr); err != nil {
		return nil, nil, fmt.Errorf("%w; %w", err, r.err)
	}
	return stored, &s.byLog, nil
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
