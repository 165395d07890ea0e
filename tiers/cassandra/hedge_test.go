package cassandra

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestHedge(t *testing.T) {
	failed := errors.New("failed")
	type step struct {
		takes time.Duration
		err   error
	}
	for _, c := range []struct {
		name  string
		after time.Duration
		steps []step // of the first call, and of the second
		calls int
		took  time.Duration
		err   error
	}{
		{"off", 0, []step{{10 * time.Second, nil}}, 1, 10 * time.Second, nil},
		{"in time", time.Second, []step{{900 * time.Millisecond, nil}}, 1, 900 * time.Millisecond, nil},
		{"fails in time", time.Second, []step{{900 * time.Millisecond, failed}}, 1, 900 * time.Millisecond, failed},
		{"second is faster", time.Second, []step{{10 * time.Second, nil}, {time.Second, nil}}, 2, 2 * time.Second, nil},
		{"second fails at once", time.Second, []step{{5 * time.Second, nil}, {0, failed}}, 2, 5 * time.Second, nil},
		{"first fails, second does not", time.Second, []step{{2 * time.Second, failed}, {5 * time.Second, nil}}, 2, 6 * time.Second, nil},
		{"both fail", time.Second, []step{{2 * time.Second, failed}, {5 * time.Second, failed}}, 2, 6 * time.Second, failed},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				calls := make(chan int, 3)
				calls <- 0
				start := time.Now()
				_, err := hedge(t.Context(), c.after, func(ctx context.Context) (int, error) {
					n := <-calls
					calls <- n + 1
					select {
					case <-time.After(c.steps[n].takes):
						return n, c.steps[n].err
					case <-ctx.Done():
						return n, ctx.Err()
					}
				})
				if took := time.Since(start); took != c.took || !errors.Is(err, c.err) {
					t.Errorf("took %v and gave %v; want %v and %v", took, err, c.took, c.err)
				}
				if n := <-calls; n != c.calls {
					t.Errorf("%d calls; want %d", n, c.calls)
				}
			})
		})
	}
}
