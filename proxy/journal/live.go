package journal

import (
	"sync"
	"time"

	"saltern/policy"
)

// live has the times of calls to the store that somebody waits for, while there is something to replay: by them the
// replay sees whether it is in the way.
type live struct {
	mu    sync.Mutex // guards the rest
	phase phase
	round policy.Round
}

// phase is what the replay does.
type phase uint8

const (
	idle      phase = iota // nothing waits: no times are taken
	replaying              // batches go, with pauses that the rate asks for
	resting                // none goes, so that there are calls to compare with
)

// liveTimes bounds the times of a round.
const liveTimes = 2048

// begin notes the begin of a call; ended notes how long it took. What counts is the phase in which it began: were it
// whether a batch was under way meanwhile, calls that are slow for another reason would be counted beside the replay,
// as they meet a batch more often.
func (l *live) begin() (ended func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	phase, start := l.phase, time.Now()
	if phase == idle {
		return func() {}
	}
	return func() {
		took := time.Since(start)
		l.mu.Lock()
		defer l.mu.Unlock()
		to := &l.round.Beside
		if phase == resting {
			to = &l.round.Quiet
		}
		if l.phase != idle && len(*to) < liveTimes {
			*to = append(*to, took)
		}
	}
}

// enter notes what the replay does from now on.
func (l *live) enter(p phase) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.phase = p; p == idle {
		l.round = policy.Round{}
	}
}

// take gives what was seen since it was last called.
func (l *live) take() policy.Round {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.round
	l.round = policy.Round{}
	return r
}
