package faulty

import (
	"context"
	"sync"
	"time"
)

// switchboard has the faults of a tier.
type switchboard struct {
	mu      sync.Mutex // guards the rest
	faults  map[Method]*active
	calls   map[Method]int
	running map[Method]int
}

// active is a fault that is switched on.
type active struct {
	Fault
	off  chan struct{} // closed when it is switched off
	left int           // calls that it is still on for; negative without end
}

func (s *switchboard) init() {
	s.faults = make(map[Method]*active)
	s.calls = make(map[Method]int)
	s.running = make(map[Method]int)
}

// Set switches a fault on for methods, in the place of those that they have.
func (s *switchboard) Set(f Fault, methods ...Method) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range methods {
		s.clearLocked(m)
		a := &active{Fault: f, off: make(chan struct{}), left: -1}
		if f.Times > 0 {
			a.left = f.Times
		}
		s.faults[m] = a
	}
}

// Clear switches the faults of methods off, of all where none is named. Calls that hang go on.
func (s *switchboard) Clear(methods ...Method) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range methods {
		s.clearLocked(m)
	}
	if len(methods) > 0 {
		return
	}
	for m := range s.faults {
		s.clearLocked(m)
	}
}

func (s *switchboard) clearLocked(m Method) {
	if a := s.faults[m]; a != nil {
		close(a.off)
		delete(s.faults, m)
	}
}

// Calls is how many calls of a method were made, with or without a fault.
func (s *switchboard) Calls(m Method) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[m]
}

// Running is how many calls of a method are under way, those that hang among them.
func (s *switchboard) Running(m Method) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running[m]
}

// begin counts a call and gives the fault for it. A fault that was on for a number of calls and has
// had them stays set, and does nothing, until it is switched off: its calls may still hang.
func (s *switchboard) begin(m Method) *active {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls[m]++
	s.running[m]++
	a := s.faults[m]
	if a == nil || a.left == 0 {
		return &active{}
	}
	if a.left > 0 {
		a.left--
	}
	return a
}

func (s *switchboard) end(m Method) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running[m]--
}

// trouble makes a call suffer the fault, but for its loss.
func (a *active) trouble(ctx context.Context) error {
	ended := ctx.Done()
	if a.Deaf {
		ended = nil
	}
	if a.Latency > 0 {
		timer := time.NewTimer(a.Latency)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ended:
			return ctx.Err()
		}
	}
	if a.Hang {
		select {
		case <-a.off:
		case <-ended:
			return ctx.Err()
		}
	}
	return a.Err
}
