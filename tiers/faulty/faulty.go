// Package faulty puts faults before a tier, for tests of what is above it. Faults are switched on and
// off by method while the tier is in use. It is in no build of the daemon.
package faulty

import (
	"context"
	"errors"
	"fmt"
	"time"

	"saltern/job"
	"saltern/tiers"
)

// Method is a method of a tier.
type Method string

// The methods that take faults. Close takes none: a test has to end.
const (
	Head          Method = "Head"
	Returns       Method = "Returns"
	Merge         Method = "Merge"
	Fill          Method = "Fill"
	Evict         Method = "Evict"
	ForgetAll     Method = "ForgetAll"
	Reserve       Method = "Reserve"
	List          Method = "List"
	Events        Method = "Events"
	LastFunctions Method = "LastFunctions"
	Expire        Method = "Expire"
	SaveRegister  Method = "SaveRegister"
	LoadRegister  Method = "LoadRegister"
)

// Fault is what happens to a call. Its parts happen in the order of its fields.
type Fault struct {
	// After lets the call through first and troubles only its answer: a write is then stored, and its
	// writer cannot know. A call that failed by itself is not troubled further.
	After bool
	// Latency is how long the call takes on top.
	Latency time.Duration
	// Hang holds the call until the fault is switched off, as if the tier's process were stopped.
	Hang bool
	// Deaf makes Latency and Hang go on when the context of the call ends, as with a driver that
	// does not look at it.
	Deaf bool
	// Err is what the call fails with.
	Err error
	// Lose answers a write as if it were done, and does not do it. Reads are let through.
	Lose bool
	// Times is for how many calls the fault is on; 0 until it is switched off.
	Times int
}

// Tier is a tier with faults before it. It is a cache if the tier under it is one; if not, Fill and
// Evict do nothing. What else the tier under it cannot do is an errors.ErrUnsupported. Safe for
// concurrent use.
type Tier struct {
	under tiers.Tier
	switchboard
}

// Store is a Tier before a durable tier.
type Store struct {
	*Tier
	store tiers.Store
}

var (
	_ tiers.Tier      = (*Tier)(nil)
	_ tiers.Filler    = (*Tier)(nil)
	_ tiers.Forgetter = (*Tier)(nil)
	_ tiers.Reserver  = (*Tier)(nil)
	_ tiers.Store     = (*Store)(nil)
)

// Wrap gives a tier without any fault yet.
func Wrap(under tiers.Tier) *Tier {
	t := &Tier{under: under}
	t.init()
	return t
}

// WrapStore is Wrap for a durable tier.
func WrapStore(under tiers.Store) *Store {
	return &Store{Tier: Wrap(under), store: under}
}

// Name is that of the tier under it.
func (t *Tier) Name() string { return t.under.Name() }

// Close closes the tier under it. Calls that hang must have been let go.
func (t *Tier) Close() error { return t.under.Close() }

// Head: see tiers.Tier.
func (t *Tier) Head(ctx context.Context, jid job.JID) (job.Head, error) {
	return read(ctx, t, Head, func() (job.Head, error) { return t.under.Head(ctx, jid) })
}

// Returns: see tiers.Tier.
func (t *Tier) Returns(ctx context.Context, jid job.JID, q tiers.ReturnQuery) (tiers.ReturnPage, error) {
	return read(ctx, t, Returns, func() (tiers.ReturnPage, error) { return t.under.Returns(ctx, jid, q) })
}

// Merge: see tiers.Tier. The outcomes of lost facts are Stored.
func (t *Tier) Merge(ctx context.Context, facts []job.Fact) ([]job.Outcome, error) {
	lost := make([]job.Outcome, len(facts))
	return call(ctx, t, Merge, &lost, func() ([]job.Outcome, error) { return t.under.Merge(ctx, facts) })
}

// Fill: see tiers.Filler.
func (t *Tier) Fill(ctx context.Context, s tiers.Snapshot) error {
	f, isFiller := t.under.(tiers.Filler)
	return write(ctx, t, Fill, func() error {
		if !isFiller {
			return nil
		}
		return f.Fill(ctx, s)
	})
}

// Evict: see tiers.Filler.
func (t *Tier) Evict(ctx context.Context, jid job.JID) error {
	f, isFiller := t.under.(tiers.Filler)
	return write(ctx, t, Evict, func() error {
		if !isFiller {
			return nil
		}
		return f.Evict(ctx, jid)
	})
}

// ForgetAll: see tiers.Forgetter.
func (t *Tier) ForgetAll(ctx context.Context) error {
	f, can := t.under.(tiers.Forgetter)
	if !can {
		return t.unsupported(ForgetAll)
	}
	return write(ctx, t, ForgetAll, func() error { return f.ForgetAll(ctx) })
}

// Reserve: see tiers.Reserver.
func (t *Tier) Reserve(ctx context.Context, jid job.JID) (bool, error) {
	r, can := t.under.(tiers.Reserver)
	if !can {
		return false, t.unsupported(Reserve)
	}
	lost := true
	return call(ctx, t, Reserve, &lost, func() (bool, error) { return r.Reserve(ctx, jid) })
}

func (t *Tier) unsupported(m Method) error {
	return fmt.Errorf("%s of %s: %w", m, t.Name(), errors.ErrUnsupported)
}

// List: see tiers.Store.
func (s *Store) List(ctx context.Context, f tiers.Filter) (tiers.ListPage, error) {
	return read(ctx, s.Tier, List, func() (tiers.ListPage, error) { return s.store.List(ctx, f) })
}

// Events: see tiers.Store.
func (s *Store) Events(ctx context.Context, q tiers.EventQuery) (tiers.EventPage, error) {
	return read(ctx, s.Tier, Events, func() (tiers.EventPage, error) { return s.store.Events(ctx, q) })
}

// LastFunctions: see tiers.Store.
func (s *Store) LastFunctions(ctx context.Context, fun string) ([]job.LastFunction, error) {
	return read(ctx, s.Tier, LastFunctions, func() ([]job.LastFunction, error) {
		return s.store.LastFunctions(ctx, fun)
	})
}

// Expire: see tiers.Store.
func (s *Store) Expire(ctx context.Context, now time.Time) (int, error) {
	none := 0
	return call(ctx, s.Tier, Expire, &none, func() (int, error) { return s.store.Expire(ctx, now) })
}

// SaveRegister: see tiers.Store.
func (s *Store) SaveRegister(ctx context.Context, master string, data []byte) error {
	return write(ctx, s.Tier, SaveRegister, func() error { return s.store.SaveRegister(ctx, master, data) })
}

// LoadRegister: see tiers.Store.
func (s *Store) LoadRegister(ctx context.Context, master string) ([]byte, error) {
	return read(ctx, s.Tier, LoadRegister, func() ([]byte, error) { return s.store.LoadRegister(ctx, master) })
}

func read[T any](ctx context.Context, t *Tier, m Method, under func() (T, error)) (T, error) {
	return call(ctx, t, m, nil, under)
}

func write(ctx context.Context, t *Tier, m Method, under func() error) error {
	_, err := call(ctx, t, m, &struct{}{}, func() (struct{}, error) { return struct{}{}, under() })
	return err
}

// call makes one call with what fault there is for it. lost is the answer of a write that gets lost;
// nil for a read.
func call[T any](ctx context.Context, t *Tier, m Method, lost *T, under func() (T, error)) (T, error) {
	var zero T
	f := t.begin(m)
	defer t.end(m)
	if f.After {
		v, err := under()
		if err != nil {
			return zero, err
		}
		if err := f.trouble(ctx); err != nil {
			return zero, err
		}
		return v, nil
	}
	if err := f.trouble(ctx); err != nil {
		return zero, err
	}
	if f.Lose && lost != nil {
		return *lost, nil
	}
	return under()
}
