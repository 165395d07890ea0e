package cassandra

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// slowly is a batcher whose batches take a second each; sent are the batches.
func slowly(t *testing.T, l limits) (b *batcher[int], sent *[][]int) {
	t.Helper()
	sent = new([][]int)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	var mu sync.Mutex // guards sent while batches are under way
	return newBatcher(ctx, l, func(_ context.Context, items []int) error {
		mu.Lock()
		*sent = append(*sent, slices.Clone(items))
		mu.Unlock()
		time.Sleep(time.Second)
		return nil
	}), sent
}

func TestLoneItemDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, sent := slowly(t, limits{items: 10, bytes: 1000, inFlight: 1, all: 10})
		start := time.Now()
		if err := <-b.put(t.Context(), "k", []int{1}, 1); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took != time.Second {
			t.Errorf("took %v; want one round trip of 1s", took)
		}
		if len(*sent) != 1 {
			t.Errorf("%v were sent", *sent)
		}
	})
}

func TestItemsOfOneKeyGoTogether(t *testing.T) {
	for _, c := range []struct {
		name  string
		l     limits
		bytes int
		want  [][]int
	}{
		{"all that waits", limits{items: 10, bytes: 1000, inFlight: 1, all: 10}, 1, [][]int{{0}, {1, 2, 3, 4, 5}}},
		{"bounded in items", limits{items: 2, bytes: 1000, inFlight: 1, all: 10}, 1, [][]int{{0}, {1, 2}, {3, 4}, {5}}},
		{"bounded in bytes", limits{items: 10, bytes: 1000, inFlight: 1, all: 10}, 400, [][]int{{0}, {1, 2}, {3, 4}, {5}}},
		{"one item is above the bound", limits{items: 10, bytes: 1000, inFlight: 1, all: 10}, 5000, [][]int{{0}, {1}, {2}, {3}, {4}, {5}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, sent := slowly(t, c.l)
				var done []<-chan error
				for i := range 6 {
					done = append(done, b.put(t.Context(), "k", []int{i}, c.bytes))
					synctest.Wait()
				}
				for _, d := range done {
					if err := <-d; err != nil {
						t.Fatal(err)
					}
				}
				if !slices.EqualFunc(*sent, c.want, slices.Equal) {
					t.Errorf("batches %v; want %v", *sent, c.want)
				}
			})
		})
	}
}

func TestKeysAreNotMixed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, sent := slowly(t, limits{items: 10, bytes: 1000, inFlight: 1, all: 10})
		start := time.Now()
		x, y := b.put(t.Context(), "x", []int{1}, 1), b.put(t.Context(), "y", []int{2}, 1)
		<-x
		<-y
		if took := time.Since(start); took != time.Second || len(*sent) != 2 {
			t.Errorf("%v took %v; want two batches at the same time", *sent, took)
		}
	})
}

// TestGoneCallersCostNothing: while the store hangs, what waits must not be sent for callers that have given up.
func TestGoneCallersCostNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, sent := slowly(t, limits{items: 10, bytes: 1000, inFlight: 1, all: 10})
		first := b.put(t.Context(), "k", []int{0}, 1)
		synctest.Wait()
		gone, cancel := context.WithCancel(t.Context())
		for i := range 100 {
			b.put(gone, "k", []int{i}, 1)
		}
		last := b.put(t.Context(), "k", []int{7}, 1)
		cancel()
		<-first
		<-last
		if want := [][]int{{0}, {7}}; !slices.EqualFunc(*sent, want, slices.Equal) {
			t.Errorf("batches %v; want %v", *sent, want)
		}
		synctest.Wait()
		if len(b.queues) != 0 {
			t.Errorf("%d queues are left", len(b.queues))
		}
	})
}

func TestBatchFailsForAllOfIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failed := errors.New("failed")
		b := newBatcher(t.Context(), limits{items: 10, bytes: 1000, inFlight: 1, all: 1}, func(context.Context, []int) error {
			time.Sleep(time.Second)
			return failed
		})
		for _, d := range []<-chan error{
			b.put(t.Context(), "k", []int{1}, 1), b.put(t.Context(), "k", []int{2}, 1), b.put(t.Context(), "k", []int{3}, 1),
		} {
			if err := <-d; !errors.Is(err, failed) {
				t.Errorf("error %v; want %v", err, failed)
			}
		}
	})
}
