package proxy

import (
	"context"
	"sync"

	"saltern/telemetry"
)

// flights makes one reading of a key serve all who ask for it at the same time. The reading runs on
// a context of its own, so a caller that gives up cancels nobody else. The zero value is ready.
type flights[T any] struct {
	mu      sync.Mutex // guards calls
	calls   map[string]*flight[T]
	running sync.WaitGroup
}

type flight[T any] struct {
	done  chan struct{} // closed once the rest is set
	value T
	err   error
	steps telemetry.Steps
}

// do reads a key, or joins the reading of it that is under way, and waits for it as long as ctx
// does. The function must call landed before it takes in what was written meanwhile, and then no
// one joins it any more. Otherwise:
//
//  1. the flight takes in the facts noted so far, and answers its callers
//  2. a fact is written and acknowledged
//  3. a reader comes, finds nothing in the cache, which is small, and joins the flight
//
// and the reader would not see a fact that was acknowledged before it came.
func (g *flights[T]) do(
	ctx context.Context, p *Proxy, key string, l *telemetry.Lookup, read func(ctx context.Context, landed func()) (T, error),
) (T, error) {
	g.mu.Lock()
	f, joined := g.calls[key]
	if !joined {
		f = &flight[T]{done: make(chan struct{})}
		if g.calls == nil {
			g.calls = make(map[string]*flight[T])
		}
		g.calls[key] = f
		g.running.Add(1)
		go g.fly(p, key, f, read)
	}
	g.mu.Unlock()
	if l.Coalesced = joined; joined {
		p.Stats.Coalesced.Add(1)
	}
	select {
	case <-f.done:
		l.Steps = f.steps
		return f.value, f.err
	case <-ctx.Done():
		var zero T
		return zero, context.Cause(ctx)
	}
}

func (g *flights[T]) fly(
	p *Proxy, key string, f *flight[T], read func(ctx context.Context, landed func()) (T, error),
) {
	defer g.running.Done()
	ctx, cancel := context.WithTimeout(p.ctx, p.o.ReadBudget)
	defer cancel()
	landed := func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.calls[key] == f {
			delete(g.calls, key)
		}
	}
	defer close(f.done)
	defer landed()
	f.value, f.err = read(telemetry.WithSteps(ctx, &f.steps), landed)
}

// wait waits for the flights under way to end.
func (g *flights[T]) wait() { g.running.Wait() }
