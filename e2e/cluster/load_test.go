package cluster

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"
)

// load is calls at a steady rate, whether or not the ones before were answered, each timed from when it was due: a
// daemon that stalls does not make the load wait for it, and what had to wait counts as slow.
type load struct {
	rate int
	// callers bound the calls under way; those beyond wait, and their time counts.
	callers int
	// call makes call number i and says of which kind it was.
	call func(i int) (kind string, err error)
}

// taken is what became of a load: how long the calls of each kind took, sorted once it has ended.
type taken struct {
	mu     sync.Mutex // guards the rest
	kinds  map[string][]time.Duration
	failed map[string]int // by error
	sent   int
}

// run sends until stop is closed, and waits for the answers.
func (l load) run(stop <-chan struct{}) *taken {
	got := &taken{kinds: map[string][]time.Duration{}, failed: map[string]int{}}
	due := make(chan int, 1<<20) // more than any test sends: the schedule never waits
	start := time.Now()
	at := func(i int) time.Time { return start.Add(time.Duration(i) * time.Second / time.Duration(l.rate)) }
	var wait sync.WaitGroup
	for range l.callers {
		wait.Go(func() {
			for i := range due {
				kind, err := l.call(i)
				got.add(kind, time.Since(at(i)), err)
			}
		})
	}
	// A timer fires a millisecond late: each time, all that is due by now goes.
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for i := 0; ; {
		for ; !at(i).After(time.Now()); i++ {
			due <- i
		}
		select {
		case <-stop:
			close(due)
			wait.Wait()
			got.sent = i
			got.sort()
			return got
		case <-tick.C:
		}
	}
}

// runFor is run for some time.
func (l load) runFor(d time.Duration) *taken {
	stop := make(chan struct{})
	time.AfterFunc(d, func() { close(stop) })
	return l.run(stop)
}

func (g *taken) add(kind string, took time.Duration, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.kinds[kind] = append(g.kinds[kind], took)
	if err != nil {
		g.failed[kind+": "+err.Error()]++
	}
}

func (g *taken) sort() {
	var all []time.Duration
	for _, took := range g.kinds {
		slices.Sort(took)
		all = append(all, took...)
	}
	slices.Sort(all)
	g.kinds["all"] = all
}

// at gives the p-th part of the times of a kind, 0.5 for the median.
func (g *taken) at(kind string, p float64) time.Duration {
	took := g.kinds[kind]
	if len(took) == 0 {
		return 0
	}
	return took[min(len(took)-1, int(p*float64(len(took))))]
}

// log prints the times of each kind.
func (g *taken) log(t *testing.T, name string) {
	t.Helper()
	for _, kind := range slices.Sorted(func(yield func(string) bool) {
		for kind := range g.kinds {
			if !yield(kind) {
				return
			}
		}
	}) {
		t.Logf("%-31s %-13s %6d calls, p50 %v, p99 %v, longest %v", name, kind, len(g.kinds[kind]),
			short(g.at(kind, 0.5)), short(g.at(kind, 0.99)), short(g.at(kind, 1)))
	}
}

// fine fails the test for each error that calls had.
func (g *taken) fine(t *testing.T) {
	t.Helper()
	for err, n := range g.failed {
		t.Errorf("%d times: %s", n, err)
	}
}

// masterWork is the live load of the long tests: through a, jobs of ten minions that run and are read, and every tenth call
// reads a job through b, which has not seen it.
type masterWork struct {
	r *rig
	l *ledger

	mu    sync.Mutex // guards the rest
	calls int
	jids  []string // published
}

func (w *masterWork) call(int) (string, error) {
	const minions = 10
	jid, i := w.next()
	switch {
	case i == 0:
		jid, err := w.l.publish(w.r.a, minionNames(minions)...)
		if err == nil {
			w.mu.Lock()
			w.jids = append(w.jids, jid)
			w.mu.Unlock()
		}
		return "publish", err
	case i <= minions:
		return "return", w.l.answer(w.r.a, jid, fmt.Sprintf("m%03d", i-1))
	case i <= 22:
		_, err := w.r.a.load(jid)
		return "read", err
	default:
		_, err := w.r.b.returns(jid)
		return "read by b", err
	}
}

// next gives what to do next: publish a job, as number 0 of 25 calls, or one of the other 24 for the job that was published
// last but one. The first calls all publish.
func (w *masterWork) next() (jid string, i int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.calls/25 - 2
	i = w.calls % 25
	w.calls++
	if n < 0 || n >= len(w.jids) {
		return "", 0
	}
	return w.jids[n], i
}

func minionNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("m%03d", i)
	}
	return names
}
