package proxy

import (
	"math"
	"sync"
	"sync/atomic"
)

// gate lets calls in until it is shut, and knows when the last one has left. It costs a call two
// additions: every read that the cache answers goes through it.
type gate struct {
	calls   atomic.Int64 // calls inside; far below zero once shut
	once    sync.Once
	drained chan struct{} // closed once shut and empty
}

const shut = math.MinInt64 / 2

func newGate() *gate { return &gate{drained: make(chan struct{})} }

// enter says whether a call may go on. If so, it must leave.
func (g *gate) enter() bool {
	if g.calls.Add(1) > 0 {
		return true
	}
	g.leave()
	return false
}

func (g *gate) leave() {
	if g.calls.Add(-1) == shut {
		g.once.Do(func() { close(g.drained) })
	}
}

// shut refuses calls from now on, and says whether it is the first to do so.
func (g *gate) shut() bool {
	for {
		n := g.calls.Load()
		if n < 0 {
			return false
		}
		if g.calls.CompareAndSwap(n, n+shut) {
			if n == 0 {
				g.once.Do(func() { close(g.drained) })
			}
			return true
		}
	}
}

// wait waits, once the gate is shut, for the calls inside to leave.
func (g *gate) wait() { <-g.drained }
