package policy_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"saltern/policy"
)

// A transcript is a list of lines "step | state afterwards". Steps are:
//
//	good, bad, neutral   a call that ends with that verdict at once
//	refused              a call that the breaker must not allow
//	begin                a call that is allowed and goes on
//	end VERDICT          the end of the longest call under way
//	+DURATION            time passes
//
// "xN" repeats a step.
var transcripts = map[string]struct {
	o     policy.BreakerOptions
	lines string
}{
	"failures in a row open it, a good probe closes it": {lines: `
		bad x4    | closed
		bad       | open
		refused   | open
		+1.1s     | open
		good      | closed
		bad x4    | closed
		good      | closed
		bad x4    | closed`},
	"a bad probe opens it again": {lines: `
		bad x5    | open
		+1.1s     | open
		bad       | open
		refused   | open
		+1.1s     | open
		good      | closed`},
	"half of enough calls": {lines: `
		bad x4    | closed
		good x5   | closed
		bad       | open`},
	"half of too few": {lines: `
		good x4   | closed
		bad x4    | closed`},
	"less than half": {lines: `
		good x8   | closed
		bad x4    | closed
		good x8   | closed
		bad x4    | closed`},
	"callers that gave up say nothing": {lines: `
		neutral x600 | closed
		good         | closed
		neutral x600 | closed
		bad x4       | closed
		neutral x600 | closed
		bad          | open`},
	"nor do they thin out the ratio": {lines: `
		neutral x100 | closed
		bad x4       | closed
		neutral x100 | closed
		good x5      | closed
		bad          | open`},
	"nor do calls under way": {lines: `
		begin x100  | closed
		bad x4      | closed
		good x5     | closed
		bad         | open`},
	"one probe at a time": {lines: `
		bad x5      | open
		+1.1s       | open
		begin       | probing
		refused x9  | probing
		end good    | closed`},
	"a probe whose caller gave up frees its place": {lines: `
		bad x5      | open
		+1.1s       | open
		begin       | probing
		end neutral | probing
		begin       | probing
		end good    | closed`},
	"a probe that is ended late, as by a deadline": {lines: `
		bad x5      | open
		+1.1s       | open
		begin       | probing
		+1m         | probing
		end bad     | open
		+1.1s       | open
		good        | closed`},
	"what was begun before it opened does not close or open it": {lines: `
		begin x2    | closed
		bad x5      | open
		end good    | open
		+1.1s       | open
		good        | closed
		bad x4      | closed
		end bad     | closed`},
	"failures age": {lines: `
		good x5     | closed
		bad x4      | closed
		+11s        | closed
		good x5     | closed
		bad x4      | closed`},
	"a window shorter than the timeout is made longer": {
		o: policy.BreakerOptions{Window: time.Second, Timeout: 1500 * time.Millisecond},
		lines: `
		begin       | closed
		+1.5s       | closed
		end bad     | closed
		begin       | closed
		+1.5s       | closed
		end bad     | closed
		begin       | closed
		+1.5s       | closed
		end bad     | closed
		begin       | closed
		+1.5s       | closed
		end bad     | closed
		begin       | closed
		+1.5s       | closed
		end bad     | open`},
	"many hang at once": {lines: `
		begin x20   | closed
		+1s         | closed
		end bad x4  | closed
		end bad     | open
		end bad x15 | open`},
	"options": {
		o: policy.BreakerOptions{Consecutive: 2, OpenFor: time.Minute, MinCalls: 4, FailureRatio: 0.25},
		lines: `
		bad         | closed
		bad         | open
		+59s        | open
		refused     | open
		+2s         | open
		good        | closed
		good x2     | closed
		bad         | closed
		good        | closed
		good        | closed
		bad         | open`},
}

func TestBreakerTranscripts(t *testing.T) {
	for name, c := range transcripts {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { play(t, c.o, c.lines) })
		})
	}
}

var verdicts = map[string]policy.Verdict{"good": policy.Good, "bad": policy.Bad, "neutral": policy.Neutral}

func play(t *testing.T, o policy.BreakerOptions, lines string) {
	var heard []policy.BreakerState
	o.OnChange = func(from, to policy.BreakerState) {
		if last := append([]policy.BreakerState{policy.Closed}, heard...); from != last[len(last)-1] {
			t.Errorf("change from %v reported after one to %v", from, last[len(last)-1])
		}
		heard = append(heard, to)
	}
	b := policy.NewBreaker(o)
	var under []func(policy.Verdict)
	step := func(words []string) {
		if words[0][0] == '+' {
			d, err := time.ParseDuration(words[0][1:])
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(d)
			return
		}
		if words[0] == "end" {
			under[0](verdicts[words[1]])
			under = under[1:]
			return
		}
		done, allowed := b.Allow()
		if allowed == (words[0] == "refused") {
			t.Fatalf("%v: allowed = %v", words, allowed)
		}
		if words[0] == "begin" {
			under = append(under, done)
		} else if allowed {
			done(verdicts[words[0]])
		}
	}
	for line := range strings.Lines(strings.TrimSpace(lines)) {
		do, want, _ := strings.Cut(line, "|")
		words, n := strings.Fields(do), 1
		if last := words[len(words)-1]; last[0] == 'x' {
			if _, err := fmt.Sscanf(last, "x%d", &n); err != nil {
				t.Fatal(err)
			}
			words = words[:len(words)-1]
		}
		for range n {
			step(words)
		}
		if got := b.State().String(); got != strings.TrimSpace(want) {
			t.Fatalf("after %q: %s", strings.TrimSpace(line), got)
		}
	}
	if now := append([]policy.BreakerState{policy.Closed}, heard...); now[len(now)-1] != b.State() {
		t.Errorf("changes %v were reported; the state is %v", heard, b.State())
	}
}

// TestBreakerReportsInOrder has many goroutines open and close a breaker: every change is reported
// once, each from the state that the one before led to.
func TestBreakerReportsInOrder(t *testing.T) {
	var mu sync.Mutex
	var heard [][2]policy.BreakerState
	at := policy.Closed
	b := policy.NewBreaker(policy.BreakerOptions{
		Consecutive: 1, OpenFor: time.Nanosecond,
		OnChange: func(from, to policy.BreakerState) {
			mu.Lock()
			defer mu.Unlock()
			if from != at {
				t.Errorf("a change from %v to %v was reported in the state %v", from, to, at)
			}
			at = to
			heard = append(heard, [2]policy.BreakerState{from, to})
		},
	})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := range 500 {
				if done, allowed := b.Allow(); allowed {
					done(policy.Verdict((i + n) % 3))
				}
			}
		})
	}
	wg.Wait()
	mu.Lock()
	defer mu.Unlock()
	if at != b.State() {
		t.Errorf("the last change was to %v; the state is %v", at, b.State())
	}
	if !slices.Contains(heard, [2]policy.BreakerState{policy.Probing, policy.Closed}) {
		t.Errorf("the breaker never closed again in %d changes: the test shows nothing", len(heard))
	}
}

// TestBreakerReportMayAsk: OnChange is called outside of all locks.
func TestBreakerReportMayAsk(t *testing.T) {
	var b *policy.Breaker
	var states []policy.BreakerState
	b = policy.NewBreaker(policy.BreakerOptions{Consecutive: 1, OnChange: func(_, _ policy.BreakerState) {
		states = append(states, b.State())
		if _, allowed := b.Allow(); allowed {
			t.Error("an open breaker allowed a call")
		}
	}})
	done, _ := b.Allow()
	done(policy.Bad)
	if !slices.Equal(states, []policy.BreakerState{policy.Open}) {
		t.Errorf("states at the reports: %v", states)
	}
}

func BenchmarkBreaker(b *testing.B) {
	breaker := policy.NewBreaker(policy.BreakerOptions{})
	b.ReportAllocs()
	for b.Loop() {
		done, _ := breaker.Allow()
		done(policy.Good)
	}
}
