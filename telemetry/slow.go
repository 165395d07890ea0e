package telemetry

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

const (
	// slowest and latest bound what is kept of each method.
	slowest = 16
	latest  = 16
	// slowFor is how long a slow call counts among the slowest.
	slowFor = time.Hour
)

// Slow keeps the slowest calls of the last hour and the latest ones that were slow or failed, by method,
// so that they can be looked at without a collector.
type Slow struct {
	mu      sync.Mutex // guards the rest
	methods map[string]*ring
}

type ring struct {
	slowest []*Kept // slowest first
	latest  []*Kept // oldest first
}

func newSlow() *Slow { return &Slow{methods: make(map[string]*ring)} }

func (s *Slow) add(k *Kept) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.methods[k.Method]
	if r == nil {
		r = &ring{}
		s.methods[k.Method] = r
	}
	r.latest = append(r.latest, k)
	if len(r.latest) > latest {
		r.latest = slices.Delete(r.latest, 0, 1)
	}
	r.slowest = slices.DeleteFunc(r.slowest, func(o *Kept) bool { return k.At.Sub(o.At) > slowFor })
	at, _ := slices.BinarySearchFunc(r.slowest, k, func(a, b *Kept) int { return cmp.Compare(b.Took, a.Took) })
	r.slowest = slices.Insert(r.slowest, at, k)
	if len(r.slowest) > slowest {
		r.slowest = r.slowest[:slowest]
	}
}

// Slowest are the slowest calls of the last hour, slowest first; of one method, or of all with "".
func (s *Slow) Slowest(method string) []*Kept {
	calls := s.of(method, func(r *ring) []*Kept { return r.slowest })
	slices.SortStableFunc(calls, func(a, b *Kept) int { return cmp.Compare(b.Took, a.Took) })
	return calls
}

// Latest are the latest calls that were slow or failed, newest first.
func (s *Slow) Latest(method string) []*Kept {
	calls := s.of(method, func(r *ring) []*Kept { return r.latest })
	slices.SortStableFunc(calls, func(a, b *Kept) int { return b.At.Compare(a.At) })
	return calls
}

func (s *Slow) of(method string, which func(*ring) []*Kept) []*Kept {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*Kept
	for name, r := range s.methods {
		if method == "" || method == name {
			out = append(out, which(r)...)
		}
	}
	return out
}
