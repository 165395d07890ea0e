package memory_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/dgraph-io/ristretto/v2"
)

// These tests pin what ristretto does where this package was made to fit it. When one of them fails
// after an upgrade, admission.go has to be read again.

// watched is a ristretto of strings, each of the cost that it has bytes, with what it calls back.
type watched struct {
	*ristretto.Cache[string, string]

	mu       sync.Mutex // guards the rest
	evicted  []string
	rejected []string
	left     []string

	gate sync.Mutex // held: ristretto's goroutine stops at the next item
}

func newWatched(t *testing.T, maxCost int64) *watched {
	t.Helper()
	w := &watched{}
	note := func(list *[]string, v string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		*list = append(*list, v)
	}
	c, err := ristretto.NewCache(&ristretto.Config[string, string]{
		NumCounters: 1000, MaxCost: maxCost, BufferItems: 64, IgnoreInternalCost: true,
		Cost: func(v string) int64 {
			w.gate.Lock()
			defer w.gate.Unlock()
			return int64(len(v))
		},
		OnEvict:  func(i *ristretto.Item[string]) { note(&w.evicted, i.Value) },
		OnReject: func(i *ristretto.Item[string]) { note(&w.rejected, i.Value) },
		OnExit:   func(v string) { note(&w.left, v) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	w.Cache = c
	return w
}

// stopped calls f while ristretto applies nothing, and lets it apply all.
func (w *watched) stopped(f func()) {
	w.gate.Lock()
	f()
	w.gate.Unlock()
	w.Wait()
}

func (w *watched) is(t *testing.T, key, want string) {
	t.Helper()
	if got, _ := w.Get(key); got != want {
		t.Errorf("Get(%q) = %q; want %q", key, got, want)
	}
}

func (w *watched) saw(t *testing.T, what string, list *[]string, want ...string) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Equal(*list, want) {
		t.Errorf("%s: %q; want %q", what, *list, want)
	}
}

// R5: a Set is not seen by the next Get. The index is asked instead.
func TestRistrettoShowsLate(t *testing.T) {
	w := newWatched(t, 100)
	w.stopped(func() {
		w.Set("k", "v", 0)
		w.is(t, "k", "")
	})
	w.is(t, "k", "v")
}

// R5, S04: of two quick Sets of a new key the first stays. The second is rejected, which takes its
// entry out of the index.
func TestRistrettoKeepsFirstOfTwo(t *testing.T) {
	w := newWatched(t, 100)
	w.stopped(func() {
		w.Set("k", "v1", 0)
		w.Set("k", "v2", 0)
	})
	w.is(t, "k", "v1")
	w.saw(t, "rejected", &w.rejected, "v2")
	w.saw(t, "left", &w.left, "v2")
}

// R5, S71: a Set above MaxCost says true, and is rejected.
func TestRistrettoRejectsTooCostly(t *testing.T) {
	w := newWatched(t, 3)
	if !w.Set("k", "large", 0) {
		t.Error("Set = false; want true")
	}
	w.Wait()
	w.is(t, "k", "")
	w.saw(t, "rejected", &w.rejected, "large")
}

// S71: a Set that finds the buffer full says false, and calls nothing back: who set it must forget it.
func TestRistrettoDropsWhenFull(t *testing.T) {
	w := newWatched(t, 1<<20)
	dropped := 0
	w.stopped(func() {
		for i := range 40_000 {
			if !w.Set(string(rune(0x1000+i)), "v", 0) {
				dropped++
			}
		}
	})
	if dropped == 0 {
		t.Error("no Set was dropped; want some")
	}
	w.saw(t, "rejected", &w.rejected)
	w.saw(t, "left", &w.left)
}

// A Del after a Set that is not applied yet takes it out all the same, in the order of the calls, and
// says so; with nothing where it finds nothing.
func TestRistrettoDeletesInOrder(t *testing.T) {
	w := newWatched(t, 100)
	w.stopped(func() {
		w.Set("k", "v1", 0)
		w.Del("k") // finds nothing yet
		w.Set("k", "v2", 0)
	})
	w.is(t, "k", "v2")
	w.saw(t, "left", &w.left, "", "v1")
	w.Del("k")
	w.is(t, "k", "")
	w.Wait()
	w.saw(t, "left", &w.left, "", "v1", "v2", "")
}

// What is evicted is called back with its value, and what replaces a value with the one replaced.
func TestRistrettoSaysWhatLeft(t *testing.T) {
	w := newWatched(t, 4)
	w.Set("a", "aaa", 0)
	w.Wait()
	w.Set("a", "AAA", 0)
	w.Wait()
	w.saw(t, "left", &w.left, "aaa")
	for range 1000 {
		w.Get("b") // so often that it is let in
	}
	w.Set("b", "bbb", 0)
	w.Wait()
	w.is(t, "b", "bbb")
	w.saw(t, "evicted", &w.evicted, "AAA")
	w.saw(t, "left", &w.left, "aaa", "AAA")
}
