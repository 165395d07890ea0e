package telemetry

import (
	"context"
	"math/rand/v2"
	"time"
)

// Op is what is asked of the tiers.
type Op uint8

// The operations.
const (
	Head     Op = iota // all of a job but its returns
	Returns            // returns of a job
	Write              // facts
	List               // jobs, newest first
	Events             // events
	Minions            // what each minion did last
	Register           // a Thorium register
	Ops
)

var opNames = [...]string{"head", "returns", "write", "list", "events", "minions", "register"}

// String is the word for the operation in metrics and traces.
func (o Op) String() string { return opNames[o] }

// Answer is what became of asking one tier.
type Answer uint8

// The answers of a tier, each its own: a miss is no error, and a tier that was not asked did not
// miss. A write that was taken is a Hit.
const (
	Hit Answer = iota
	Miss
	Absent
	Failed
	Opened
	TimedOut
	Skipped
	Answers
)

var answerNames = [...]string{"hit", "miss", "absent", "error", "open", "timeout", "skipped"}

// String is the word for the answer in metrics and traces.
func (a Answer) String() string { return answerNames[a] }

// IsFault says whether the answer means that the tier did not do its part.
func (a Answer) IsFault() bool { return a == Failed || a == Opened || a == TimedOut }

// Step is one tier that was asked.
type Step struct {
	Tier    string // a constant
	Answer  Answer
	Breaker string        // the state of its breaker for such calls afterwards; empty where it has none
	Start   time.Duration // by Now
	Took    time.Duration
}

// Journal is the tier of a step in which the journal acknowledged what the store had not taken.
const Journal = "journal"

// MaxSteps is how many tiers one lookup can ask: two shared ones and the store, twice.
const MaxSteps = 6

// Steps are the tiers that were asked, in order. What does not fit is left out.
type Steps struct {
	n    uint8
	list [MaxSteps]Step
}

// Add appends a step. On nil it does nothing.
func (s *Steps) Add(step Step) {
	if s != nil && int(s.n) < len(s.list) {
		s.list[s.n] = step
		s.n++
	}
}

// All are the steps.
func (s *Steps) All() []Step { return s.list[:s.n] }

// Lookup is one read or write.
type Lookup struct {
	Op        Op
	JID       string // of the job, empty for what has none
	Answer    Answer // what came of it: Hit, Absent (there is none), Miss (a cache alone was asked) or a fault
	Coalesced bool   // it joined a reading that was under way
	Stale     bool   // the answer may be old, as no tier could be asked
	Memory    Answer // of the cache in the process; Skipped where it is not asked
	Version   uint64 // of the load, where there is one
	Start     time.Duration
	Took      time.Duration // 0: not timed
	Steps     Steps
}

type stepsKey struct{}

// WithSteps makes Add on StepsOf go into s.
func WithSteps(ctx context.Context, s *Steps) context.Context {
	return context.WithValue(ctx, stepsKey{}, s)
}

// StepsOf are the steps that ctx carries, nil when none.
func StepsOf(ctx context.Context) *Steps {
	s, _ := ctx.Value(stepsKey{}).(*Steps)
	return s
}

// epoch is where Now begins.
var epoch = time.Now()

// Now is the monotonic time since the process began. It reads one clock, time.Now two.
func Now() time.Duration { return time.Since(epoch) }

// SampleEvery is how many reads of the cache in the process there are to one that is timed: two looks
// at the clock cost as much as the read.
const SampleEvery = 64

// SampleStart is Now for one in SampleEvery calls, and 0 for the others.
func SampleStart() time.Duration {
	if rand.Uint32()%SampleEvery != 0 {
		return 0
	}
	return Now()
}
