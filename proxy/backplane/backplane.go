package backplane

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"saltern/job"
)

// Client is what the backplane needs of a Redis client. It should have timeouts of its own and make one try.
type Client interface {
	XAdd(ctx context.Context, a *goredis.XAddArgs) *goredis.StringCmd
	XRead(ctx context.Context, a *goredis.XReadArgs) *goredis.XStreamSliceCmd
	XRevRangeN(ctx context.Context, stream, start, stop string, count int64) *goredis.XMessageSliceCmd
}

// Options of a Backplane. Fields without a default are required.
type Options struct {
	Client Client
	// Key is the stream's. Proxies of one namespace have one key.
	Key string
	// Origin is the name of this proxy in logs: its master's id. Two may have the same.
	Origin string
	// Evict is called for each job that another proxy wrote to. It must not block.
	Evict func(job.JID)
	// Gap is called when something was missed: every job that may still change is to be dropped. It must not
	// block.
	Gap func()
	// MaxLen is about how many entries the stream keeps; default 20,000. A proxy that cannot read for longer
	// than they last has a gap.
	MaxLen int64
	// MaxLag is how old the last own entry that was read may be for the backplane to be healthy; default 1 s.
	MaxLag time.Duration
	// Logger takes changes of state; default slog.Default().
	Logger *slog.Logger
}

const (
	defaultMaxLen = 20_000
	defaultMaxLag = time.Second

	// beatEvery is how often a sender without anything to say says so.
	beatEvery = 250 * time.Millisecond
	// silentAfter is when a sender that says nothing is taken for dead.
	silentAfter = 5 * time.Second
	// blockFor is how long one read waits. Close waits for it: the client cannot be told to stop.
	blockFor = 250 * time.Millisecond
	// answerWithin is how long any answer may take on top of that.
	answerWithin = time.Second
	readAtOnce   = 500

	// maxPending bounds the memory while Redis is away. With more, others are told that they missed something.
	maxPending = 10_000
	// maxJobs is how many jobs go into one entry.
	maxJobs = 500

	firstWait = 50 * time.Millisecond
	longWait  = time.Second
)

// Backplane sends what was written here and receives what was written elsewhere. Its methods are safe for
// concurrent use.
type Backplane struct {
	o     Options
	name  string // of this run of this proxy
	start time.Time

	outbox outbox
	inbox  inbox

	// seenSent is when the last own entry that was read had been sent, since start; 0 for none yet.
	seenSent atomic.Int64
	healthy  atomic.Bool // as last logged

	published, received, evicted, gaps, malformed atomic.Uint64
}

// New makes a backplane. Run makes it work.
func New(o Options) (*Backplane, error) {
	if o.Client == nil || o.Key == "" || o.Evict == nil || o.Gap == nil {
		return nil, errors.New("backplane: client, key, evict and gap are required")
	}
	if o.MaxLen == 0 {
		o.MaxLen = defaultMaxLen
	}
	if o.MaxLag == 0 {
		o.MaxLag = defaultMaxLag
	}
	if o.MaxLag <= beatEvery {
		return nil, fmt.Errorf("backplane: a lag of at most %v is below the time between two beats, %v", o.MaxLag, beatEvery)
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	b := &Backplane{o: o, name: fmt.Sprintf("%s/%08x", o.Origin, rand.Uint32()), start: time.Now()}
	b.outbox.init()
	b.inbox.origins = make(map[string]*origin)
	return b, nil
}

// Publish announces facts to the other proxies. It is to be called when the shared tiers have them. It does not
// wait: the facts of a burst go together.
func (b *Backplane) Publish(facts ...job.Fact) { b.outbox.add(facts) }

// Run sends and receives until ctx ends, and then says farewell.
func (b *Backplane) Run(ctx context.Context) {
	var loops sync.WaitGroup
	loops.Go(func() { b.receive(ctx) })
	loops.Go(func() { b.send(ctx) })
	loops.Wait()
}

// Healthy says whether what others write is known here within Options.MaxLag.
func (b *Backplane) Healthy() bool {
	return b.seenSent.Load() > 0 && b.Lag() <= b.o.MaxLag
}

// Lag is the age of the last own entry that was read: that much of what others wrote may not be known here. It
// is a quarter of a second and little more when all is well.
func (b *Backplane) Lag() time.Duration {
	return time.Since(b.start) - time.Duration(b.seenSent.Load())
}

// Stats are counts since the backplane was made.
type Stats struct {
	Published uint64 // entries sent, beats included
	Received  uint64 // entries of others, beats included
	Evicted   uint64 // jobs that others wrote to
	Gaps      uint64
	Malformed uint64 // entries that could not be read
	Lag       time.Duration
}

// Stats gives the counts.
func (b *Backplane) Stats() Stats {
	return Stats{
		Published: b.published.Load(), Received: b.received.Load(), Evicted: b.evicted.Load(),
		Gaps: b.gaps.Load(), Malformed: b.malformed.Load(), Lag: b.Lag(),
	}
}

// logHealth logs a change.
func (b *Backplane) logHealth(err error) {
	healthy := b.Healthy()
	if b.healthy.Swap(healthy) == healthy {
		return
	}
	if healthy {
		b.o.Logger.Info("the backplane works", "stream", b.o.Key)
		return
	}
	b.o.Logger.Warn("the backplane is blind: running jobs of other masters are read from the store",
		"stream", b.o.Key, "err", err)
}

// pause waits with jitter, and says whether ctx goes on. It gives the next, longer wait.
func pause(ctx context.Context, wait time.Duration) (time.Duration, bool) {
	timer := time.NewTimer(wait/2 + rand.N(wait/2))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return wait, false
	case <-timer.C:
		return min(2*wait, longWait), true
	}
}
