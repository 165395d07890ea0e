package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"saltern/job"
	"saltern/telemetry"
	"saltern/tiers"
)

// Cache is the tier in the process: what is written through the proxy and held in it is exact.
type Cache interface {
	tiers.Tier
	tiers.Filler
	tiers.StaleReader
}

// Options configure a Proxy. Fields without a default are required.
type Options struct {
	// Cache is asked first. It is never guarded: it cannot fail.
	Cache Cache
	// Shared are the tiers between the cache and the store, fastest first; often none.
	Shared []tiers.Tier
	// Store is the durable tier.
	Store tiers.Store
	// Clock gives out the versions of facts.
	Clock *job.Clock
	// Now is the wall clock; default time.Now.
	Now func() time.Time
	// Logger takes changes of state; default slog.Default().
	Logger *slog.Logger
	// Metrics takes what the tiers took; nil for nobody.
	Metrics *telemetry.Metrics

	// ReadBudget bounds one read through all tiers; default 10 s. Readers leave earlier by their
	// own context.
	ReadBudget time.Duration
	// WriteBudget bounds one write to the durable store; default 10 s.
	WriteBudget time.Duration
	// SoftTimeout is when a read goes on to the next tier without waiting any longer for this one;
	// default 50 ms.
	SoftTimeout time.Duration
	// NegativeTTL is how long the cache may say that there is no such job without asking again;
	// default 1 s, negative for not at all. Any write of the job ends it at once.
	NegativeTTL time.Duration
	// Staleness bounds how old the cache's copy of an unsealed job may be where other proxies write
	// to the same store; zero where no one else does. Older ones are answered with when no tier can
	// be asked.
	Staleness time.Duration
	// FillBytes is the largest job that is read as a whole to fill the caches; default 4 MiB.
	FillBytes int
	// ExpireEvery is how often the store is told to remove what has passed its time; default 1 min.
	// A cache keeps a job of which only the store knows when it ends no longer than that.
	ExpireEvery time.Duration
	// Backplane tells other proxies what was written here; nil where there are none.
	Backplane Backplane
	// Notes remembers over restarts which shared tiers may not hold what the store does; nil where
	// there are none to remember.
	Notes Notes
	// JIDNodes is how many proxies mint jids for the same store, each only those of its own share of
	// the microseconds: JIDNode of them, from 0. Default 1, which is for a store of one's own.
	JIDNode, JIDNodes int
	// Master is recorded on loads and events that name none.
	Master string
}

// Notes is what a proxy remembers of its shared tiers over restarts.
type Notes interface {
	// Dirty says whether the shared tier may hold less than the store, of jobs that are not known.
	Dirty(tier string) bool
	// SetDirty notes it. It must be on the disk before the facts that were missed have left the
	// journal, not at once.
	SetDirty(tier string, dirty bool)
	// Suspects are jobs of which it is not known which tiers have all their facts.
	Suspects() []job.JID
}

func (o Options) withDefaults() Options {
	o.JIDNodes = cmp.Or(o.JIDNodes, 1)
	o.ReadBudget = cmp.Or(o.ReadBudget, 10*time.Second)
	o.WriteBudget = cmp.Or(o.WriteBudget, 10*time.Second)
	o.SoftTimeout = cmp.Or(o.SoftTimeout, 50*time.Millisecond)
	o.NegativeTTL = cmp.Or(o.NegativeTTL, time.Second)
	o.FillBytes = cmp.Or(o.FillBytes, 4<<20)
	o.ExpireEvery = cmp.Or(o.ExpireEvery, time.Minute)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// Proxy reads through and writes to its tiers. Its methods are safe for concurrent use.
type Proxy struct {
	o Options
	// lower are the tiers under the cache: the shared ones, then the store.
	lower []tiers.Tier
	fills *fills
	heads flights[job.Head]
	jobs  flights[tiers.Snapshot]
	// lags says at the index of a lower tier what the tier does not have; the store has all.
	lags  []*lag
	backs *backfiller
	Stats Stats

	jids   reservation
	minted minted

	gate   *gate           // every call goes through it, so that tiers are closed when none is inside
	ctx    context.Context // ends the flights and the loops when the proxy closes
	cancel context.CancelCauseFunc
	loops  sync.WaitGroup // the loops, and questions to tiers that a read or write did not wait for
	expire chan struct{}
}

// ErrClosed is returned for a call that comes while the proxy stops, and for a read that the stop
// ended. Of a write with this error nothing was stored.
var ErrClosed = fmt.Errorf("%w: saltern is stopping", tiers.ErrUnavailable)

// Open starts a proxy over tiers that are open. Close ends it.
func Open(o Options) *Proxy {
	o = o.withDefaults()
	p := &Proxy{o: o, fills: newFills(o.Cache), gate: newGate(), expire: make(chan struct{}, 1)}
	p.lower = append(append([]tiers.Tier{}, o.Shared...), o.Store)
	p.lags = make([]*lag, len(p.lower))
	for i, t := range p.lower {
		p.lags[i] = newLag(p.noteDirty(t.Name()))
	}
	if o.Notes != nil {
		for i, t := range o.Shared {
			p.lags[i].suspect(o.Notes.Suspects(), o.Notes.Dirty(t.Name()))
		}
	}
	p.jids.node, p.jids.nodes = o.JIDNode, o.JIDNodes
	p.Stats.init(o.Cache, p.lower)
	p.ctx, p.cancel = context.WithCancelCause(context.Background())
	p.backs = newBackfiller(p)
	p.loops.Go(p.expireLoop)
	if o.Backplane != nil {
		p.loops.Go(func() { o.Backplane.Run(p.ctx) })
	}
	for i, t := range o.Shared {
		if f, ok := t.(tiers.Filler); ok {
			p.loops.Go(func() { p.repairLoop(i, f) })
		}
	}
	return p
}

func (p *Proxy) noteDirty(tier string) func(bool) {
	if p.o.Notes == nil {
		return func(bool) {}
	}
	return func(dirty bool) { p.o.Notes.SetDirty(tier, dirty) }
}

// Close refuses further calls, ends reads, waits for the writes under way, and closes the tiers, the
// store last. A second Close does nothing.
func (p *Proxy) Close() error {
	if !p.gate.shut() {
		return nil
	}
	p.cancel(ErrClosed)
	p.gate.wait()
	p.heads.wait()
	p.jobs.wait()
	p.loops.Wait()
	errs := []error{p.o.Cache.Close()}
	for _, t := range p.lower {
		if err := t.Close(); err != nil {
			errs = append(errs, fmt.Errorf("close %s: %w", t.Name(), err))
		}
	}
	return errors.Join(errs...)
}

// within is ctx, ended also when the proxy closes.
func (p *Proxy) within(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(p.ctx, func() { cancel(ErrClosed) })
	return ctx, func() {
		stop()
		cancel(context.Canceled)
	}
}
