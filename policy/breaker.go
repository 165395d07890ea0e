package policy

import (
	"cmp"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"
)

// BreakerState is what a breaker lets through.
type BreakerState uint8

const (
	// Closed lets every call through.
	Closed BreakerState = iota
	// Open lets no call through.
	Open
	// Probing lets one call through, whose result closes or opens the breaker.
	Probing
)

var breakerStateNames = [...]string{"closed", "open", "probing"}

// String is the word for the state in logs and on pages.
func (s BreakerState) String() string { return breakerStateNames[s] }

// Verdict is what a call says about the health of what it called.
type Verdict uint8

const (
	// Good: it answered, be it with "not found" or a refusal.
	Good Verdict = iota
	// Bad: it failed, was too slow, or did not answer in its own time.
	Bad
	// Neutral: the call says nothing, as the caller gave up.
	Neutral
)

// BreakerOptions configure a Breaker. Zero fields take the defaults named.
type BreakerOptions struct {
	// Window is over which failures are counted; default 10 s. It has to be longer than a call may
	// take: gobreaker throws a result away that comes after its window, so that with a shorter one
	// a store that times out every call never opens its breaker. NewBreaker sees to twice the time
	// in which Consecutive calls time out one after the other.
	Window time.Duration
	// Timeout is the longest that a call may take; default 1 s.
	Timeout time.Duration
	// MinCalls is how many good and bad calls a window needs for its ratio to count; default 10.
	MinCalls uint32
	// FailureRatio of a window that opens the breaker; default 0.5.
	FailureRatio float64
	// Consecutive failures in a window that open the breaker whatever the ratio; default 5.
	Consecutive uint32
	// OpenFor is how long the breaker stays open before it probes; default 1 s.
	OpenFor time.Duration
	// OnChange is told of each change of state: in order, never twice at once, from the goroutine of
	// some call. It must not block.
	OnChange func(from, to BreakerState)
}

// Breaker is a circuit breaker (gobreaker) for one class of calls to one tier. Every call that was
// allowed must be ended by its done, also when it hangs: gobreaker's probing state has no expiry,
// so a probe that never ends would keep the breaker shut for ever.
type Breaker struct {
	two    *gobreaker.TwoStepCircuitBreaker[struct{}]
	state  atomic.Uint32
	report func(from, to BreakerState)

	unreported atomic.Int32 // is len(changes); read without mu
	mu         sync.Mutex   // guards the rest; taken under gobreaker's own
	changes    [][2]BreakerState
	reporting  bool
}

// Errors by which a verdict reaches gobreaker.
var (
	errBad     = errors.New("bad")
	errNeutral = errors.New("neutral")
)

// breakerBuckets is how finely the window rolls.
const breakerBuckets = 10

// NewBreaker makes a closed breaker.
func NewBreaker(o BreakerOptions) *Breaker {
	o = o.withDefaults()
	b := &Breaker{report: o.OnChange}
	b.two = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		MaxRequests:  1,
		Interval:     o.Window,
		BucketPeriod: o.Window / breakerBuckets,
		Timeout:      o.OpenFor,
		ReadyToTrip: func(c gobreaker.Counts) bool {
			// Requests counts neutral calls and those under way too.
			judged := c.TotalSuccesses + c.TotalFailures
			return c.ConsecutiveFailures >= o.Consecutive || judged >= o.MinCalls &&
				float64(c.TotalFailures) >= o.FailureRatio*float64(judged)
		},
		IsExcluded:    func(err error) bool { return errors.Is(err, errNeutral) },
		OnStateChange: b.changed,
	})
	return b
}

func (o BreakerOptions) withDefaults() BreakerOptions {
	o.Timeout = cmp.Or(o.Timeout, time.Second)
	o.Window = cmp.Or(o.Window, 10*time.Second)
	o.MinCalls = cmp.Or(o.MinCalls, 10)
	o.FailureRatio = cmp.Or(o.FailureRatio, 0.5)
	o.Consecutive = cmp.Or(o.Consecutive, 5)
	o.OpenFor = cmp.Or(o.OpenFor, time.Second)
	if o.OnChange == nil {
		o.OnChange = func(BreakerState, BreakerState) {}
	}
	o.Window = max(o.Window, 2*time.Duration(o.Consecutive)*o.Timeout)
	return o
}

// changed runs under gobreaker's own mutex, where a question to the breaker would never be
// answered: it only notes.
func (b *Breaker) changed(_ string, from, to gobreaker.State) {
	b.state.Store(uint32(stateOf(to)))
	b.mu.Lock()
	defer b.mu.Unlock()
	b.changes = append(b.changes, [2]BreakerState{stateOf(from), stateOf(to)})
	b.unreported.Add(1)
}

func stateOf(s gobreaker.State) BreakerState {
	switch s {
	case gobreaker.StateOpen:
		return Open
	case gobreaker.StateHalfOpen:
		return Probing
	default:
		return Closed
	}
}

// State is the state as of the last call; it takes no lock.
func (b *Breaker) State() BreakerState { return BreakerState(b.state.Load()) }

// Allow asks whether a call may be made. If so, done must be called exactly once with what the call
// showed.
func (b *Breaker) Allow() (done func(Verdict), allowed bool) {
	end, err := b.two.Allow()
	b.announce()
	if err != nil {
		return nil, false
	}
	return func(v Verdict) {
		end(v.err())
		b.announce()
	}, true
}

func (v Verdict) err() error {
	switch v {
	case Bad:
		return errBad
	case Neutral:
		return errNeutral
	default:
		return nil
	}
}

// announce reports the changes noted so far, unless another goroutine is about it: that one then
// reports these too, so that they come in order.
func (b *Breaker) announce() {
	if b.unreported.Load() == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.reporting {
		return
	}
	b.reporting = true
	for len(b.changes) > 0 {
		c := b.changes[0]
		b.changes = b.changes[1:]
		b.unreported.Add(-1)
		b.mu.Unlock()
		b.report(c[0], c[1])
		b.mu.Lock()
	}
	b.changes, b.reporting = nil, false
}
