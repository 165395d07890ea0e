package proxy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"saltern/job"
	"saltern/telemetry"
	"saltern/tiers"
)

// found is a value, and the leases that tiers above the one that had it gave with their misses.
type found[T any] struct {
	value  T
	leases []lease
}

type lease struct {
	tier  int
	token string
}

// cascade asks the tiers under the cache from the fastest to the durable store, until one has the
// value. A tier that misses, fails, has its breaker open, or is slower than the soft timeout is
// passed by; only the word of the durable store makes the error tiers.ErrNotFound. If the store
// cannot be asked, a late answer of a tier that was passed by is taken after all.
func cascade[T any](
	ctx context.Context, p *Proxy, op telemetry.Op, jid job.JID, ask func(context.Context, tiers.Tier) (T, error),
) (found[T], error) {
	var (
		result found[T]
		late   []<-chan reply[T]
		errs   []error
	)
	steps := telemetry.StepsOf(ctx)
	last := len(p.lower) - 1
	for i, t := range p.lower {
		if p.lags[i].behind(jid) {
			p.tierAsked(steps, i, op, Skipped, telemetry.Now())
			continue
		}
		start := telemetry.Now()
		r, pending := askTier(ctx, p, i, i < last, ask)
		if pending != nil {
			p.tierAsked(steps, i, op, TimedOut, start)
			late = append(late, pending)
			continue
		}
		a := answerOf(r.err)
		p.tierAsked(steps, i, op, a, start)
		switch a {
		case Hit:
			result.value = r.value
			return result, nil
		case Absent:
			return result, tiers.ErrNotFound
		case Miss:
			if i == last {
				return result, tiers.ErrNotFound
			}
			if miss, ok := errors.AsType[*tiers.Miss](r.err); ok {
				result.leases = append(result.leases, lease{tier: i, token: miss.Lease})
			}
		default:
			errs = append(errs, fmt.Errorf("%s: %w", t.Name(), r.err))
		}
	}
	for _, pending := range late {
		if r := await(ctx, pending); r.err == nil {
			// Which tier it was does not matter: nothing is filled from a late answer.
			return found[T]{value: r.value}, nil
		}
	}
	if cause := context.Cause(ctx); errors.Is(cause, ErrClosed) {
		return result, cause
	}
	return result, unavailable(errs)
}

// unavailable is an ErrUnavailable that names what went wrong, in one line.
func unavailable(errs []error) error {
	err := tiers.ErrUnavailable
	for i, e := range errs {
		separator := "; "
		if i == 0 {
			separator = ": "
		}
		err = fmt.Errorf("%w%s%w", err, separator, e)
	}
	return err
}

// reply is what a tier said to one question.
type reply[T any] struct {
	value T
	err   error
}

// askTier asks one tier. With soft, it waits no longer than the soft timeout, and the channel that
// it then gives has the late reply. The question goes on until the tier's own timeout, also when no
// one waits any more: a breaker learns from nothing else that the tier hangs.
func askTier[T any](
	ctx context.Context, p *Proxy, i int, soft bool, ask func(context.Context, tiers.Tier) (T, error),
) (reply[T], <-chan reply[T]) {
	if !soft {
		v, err := ask(ctx, p.lower[i])
		return reply[T]{value: v, err: err}, nil
	}
	replies := make(chan reply[T], 1)
	p.loops.Go(func() {
		ctx, stop := p.within(context.WithoutCancel(ctx))
		defer stop()
		ctx, cancel := context.WithTimeout(ctx, p.o.ReadBudget)
		defer cancel()
		v, err := ask(ctx, p.lower[i])
		replies <- reply[T]{value: v, err: err}
	})
	timer := time.NewTimer(p.o.SoftTimeout)
	defer timer.Stop()
	select {
	case r := <-replies:
		return r, nil
	case <-timer.C:
		return reply[T]{}, replies
	case <-ctx.Done():
		return reply[T]{err: context.Cause(ctx)}, nil
	}
}

// await waits for a reply as long as ctx does. One that is there is taken even then.
func await[T any](ctx context.Context, replies <-chan reply[T]) reply[T] {
	select {
	case r := <-replies:
		return r
	case <-ctx.Done():
	}
	select {
	case r := <-replies:
		return r
	default:
		return reply[T]{err: context.Cause(ctx)}
	}
}
