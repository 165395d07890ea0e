package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"saltern/job"
	"saltern/policy"
	"saltern/tiers"
)

// GuardOptions configure Guard. Zero fields take the defaults named.
type GuardOptions struct {
	// Timeout is the longest that a read or a write of one job may take; default 1 s.
	Timeout time.Duration
	// ListTimeout is the same for lists; default 30 s.
	ListTimeout time.Duration
	// Slow is from when on an answer counts against the tier, lists apart; default Timeout.
	Slow time.Duration
	// Read, Write and List configure the breakers; their Timeout is set from the above.
	Read, Write, List policy.BreakerOptions
}

// Guarded is a tier behind its deadlines and its breakers: one for reads of a job, one for writes,
// one for lists, so that a list that takes long takes no job away. Every call returns in its time,
// whatever the tier's driver does: the driver is called in a goroutine that is left behind when it
// hangs.
type Guarded struct {
	under             tiers.Tier
	read, write, list class
	calls             sync.WaitGroup // of the driver, those left behind among them
}

// class is a kind of calls that share their fate.
type class struct {
	breaker       *policy.Breaker
	timeout, slow time.Duration
}

func newClass(o policy.BreakerOptions, timeout, slow time.Duration) class {
	o.Timeout = timeout
	return class{breaker: policy.NewBreaker(o), timeout: timeout, slow: slow}
}

// GuardedStore is a Guarded durable tier.
type GuardedStore struct {
	*Guarded
	store tiers.Store
}

var (
	_ tiers.Tier   = (*Guarded)(nil)
	_ tiers.Filler = (*Guarded)(nil)

	_ tiers.Forgetter = (*Guarded)(nil)
	_ tiers.Reserver  = (*Guarded)(nil)

	_ tiers.Store = (*GuardedStore)(nil)
)

// Guard puts a tier behind deadlines and breakers.
func Guard(under tiers.Tier, o GuardOptions) *Guarded {
	o.Timeout = cmp.Or(o.Timeout, time.Second)
	o.ListTimeout = cmp.Or(o.ListTimeout, 30*time.Second)
	o.Slow = cmp.Or(o.Slow, o.Timeout)
	return &Guarded{
		under: under,
		read:  newClass(o.Read, o.Timeout, o.Slow),
		write: newClass(o.Write, o.Timeout, o.Slow),
		list:  newClass(o.List, o.ListTimeout, o.ListTimeout),
	}
}

// GuardStore is Guard for a durable tier.
func GuardStore(under tiers.Store, o GuardOptions) *GuardedStore {
	return &GuardedStore{Guarded: Guard(under, o), store: under}
}

// States are the states of the breakers.
func (g *Guarded) States() (read, write, list policy.BreakerState) {
	return g.read.breaker.State(), g.write.breaker.State(), g.list.breaker.State()
}

// errOwnTimeout is the cause of a deadline that is ours: it counts against the tier. A deadline of
// the caller says nothing about the tier.
var errOwnTimeout = errors.New("own timeout")

// guard makes one call of the tier under it.
func guard[T any](
	ctx context.Context, g *Guarded, c class, call func(context.Context) (T, error),
) (T, error) {
	var zero T
	done, allowed := c.breaker.Allow()
	if !allowed {
		return zero, fmt.Errorf("%s: %w", g.under.Name(), tiers.ErrOpen)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.timeout, errOwnTimeout)
	defer cancel()
	start := time.Now()
	replies := make(chan reply[T], 1)
	g.calls.Go(func() {
		v, err := call(ctx)
		replies <- reply[T]{value: v, err: err}
	})
	r := await(ctx, replies)
	if r.err != nil && ctx.Err() != nil {
		return zero, g.ended(ctx, done)
	}
	done(verdict(r.err, time.Since(start) >= c.slow))
	return r.value, r.err
}

// ended ends a call whose context ended: by our own timeout, or because the caller gave up.
func (g *Guarded) ended(ctx context.Context, done func(policy.Verdict)) error {
	cause := context.Cause(ctx)
	if errors.Is(cause, errOwnTimeout) {
		done(policy.Bad)
		return fmt.Errorf("%s: %w", g.under.Name(), tiers.ErrTimeout)
	}
	done(policy.Neutral)
	return cause
}

// verdict is what an answer says about the health of the tier. Not found is an answer, and so is a
// refusal for what was asked or for want of room. That we ourselves have too much under way says nothing: the calls
// that are under way will.
func verdict(err error, slow bool) policy.Verdict {
	if errors.Is(err, tiers.ErrBusy) {
		return policy.Neutral
	}
	for _, answer := range []error{tiers.ErrNotFound, tiers.ErrAbsent, tiers.ErrTooLarge,
		tiers.ErrInvalid, tiers.ErrFull} {
		if errors.Is(err, answer) {
			err = nil
		}
	}
	if err != nil || slow {
		return policy.Bad
	}
	return policy.Good
}

// Name is the name of the tier under it.
func (g *Guarded) Name() string { return g.under.Name() }

// Close closes the tier under it, unless the driver still hangs in a call: then it says so, and the
// tier stays open.
func (g *Guarded) Close() error {
	idle := make(chan struct{})
	go func() {
		g.calls.Wait()
		close(idle)
	}()
	select {
	case <-idle:
		return g.under.Close()
	case <-time.After(g.write.timeout):
		return fmt.Errorf("%w: a call has not ended, not closed", tiers.ErrTimeout)
	}
}

// Head is a guarded read.
func (g *Guarded) Head(ctx context.Context, jid job.JID) (job.Head, error) {
	return guard(ctx, g, g.read, func(ctx context.Context) (job.Head, error) {
		return g.under.Head(ctx, jid)
	})
}

// Returns is a guarded read.
func (g *Guarded) Returns(
	ctx context.Context, jid job.JID, q tiers.ReturnQuery,
) (tiers.ReturnPage, error) {
	return guard(ctx, g, g.read, func(ctx context.Context) (tiers.ReturnPage, error) {
		return g.under.Returns(ctx, jid, q)
	})
}

// Merge is a guarded write.
func (g *Guarded) Merge(ctx context.Context, facts []job.Fact) ([]job.Outcome, error) {
	return guard(ctx, g, g.write, func(ctx context.Context) ([]job.Outcome, error) {
		return g.under.Merge(ctx, facts)
	})
}

// none is the value of a call that has only an error.
type none struct{}

// Fill is a guarded write. A tier that is no cache declines.
func (g *Guarded) Fill(ctx context.Context, s tiers.Snapshot) error {
	f, ok := g.under.(tiers.Filler)
	if !ok {
		return nil
	}
	_, err := guard(ctx, g, g.write, func(ctx context.Context) (none, error) {
		return none{}, f.Fill(ctx, s)
	})
	return err
}

// Evict is a guarded write.
func (g *Guarded) Evict(ctx context.Context, jid job.JID) error {
	f, ok := g.under.(tiers.Filler)
	if !ok {
		return nil
	}
	_, err := guard(ctx, g, g.write, func(ctx context.Context) (none, error) {
		return none{}, f.Evict(ctx, jid)
	})
	return err
}

// ForgetAll is a guarded write. A tier that cannot says so with an error.
func (g *Guarded) ForgetAll(ctx context.Context) error {
	f, ok := g.under.(tiers.Forgetter)
	if !ok {
		return fmt.Errorf("%w: %s cannot forget everything at once", tiers.ErrInvalid, g.under.Name())
	}
	_, err := guard(ctx, g, g.write, func(ctx context.Context) (none, error) {
		return none{}, f.ForgetAll(ctx)
	})
	return err
}

// Reserve is a guarded write. A tier that cannot says so with an error.
func (g *Guarded) Reserve(ctx context.Context, jid job.JID) (bool, error) {
	r, ok := g.under.(tiers.Reserver)
	if !ok {
		return false, fmt.Errorf("%w: %s reserves no jids", tiers.ErrInvalid, g.under.Name())
	}
	return guard(ctx, g, g.write, func(ctx context.Context) (bool, error) {
		return r.Reserve(ctx, jid)
	})
}

// List is a guarded read.
func (g *GuardedStore) List(ctx context.Context, f tiers.Filter) (tiers.ListPage, error) {
	return guard(ctx, g.Guarded, g.list, func(ctx context.Context) (tiers.ListPage, error) {
		return g.store.List(ctx, f)
	})
}

// Events is a guarded read.
func (g *GuardedStore) Events(ctx context.Context, q tiers.EventQuery) (tiers.EventPage, error) {
	return guard(ctx, g.Guarded, g.list, func(ctx context.Context) (tiers.EventPage, error) {
		return g.store.Events(ctx, q)
	})
}

// LastFunctions is a guarded read.
func (g *GuardedStore) LastFunctions(ctx context.Context, fun string) ([]job.LastFunction, error) {
	return guard(ctx, g.Guarded, g.list, func(ctx context.Context) ([]job.LastFunction, error) {
		return g.store.LastFunctions(ctx, fun)
	})
}

// Expire is not guarded: it may run for as long as it needs, and says nothing about reads.
func (g *GuardedStore) Expire(ctx context.Context, now time.Time) (int, error) {
	return g.store.Expire(ctx, now)
}

// SaveRegister is a guarded write.
func (g *GuardedStore) SaveRegister(ctx context.Context, master string, data []byte) error {
	_, err := guard(ctx, g.Guarded, g.write, func(ctx context.Context) (none, error) {
		return none{}, g.store.SaveRegister(ctx, master, data)
	})
	return err
}

// LoadRegister is a guarded read.
func (g *GuardedStore) LoadRegister(ctx context.Context, master string) ([]byte, error) {
	return guard(ctx, g.Guarded, g.read, func(ctx context.Context) ([]byte, error) {
		return g.store.LoadRegister(ctx, master)
	})
}
