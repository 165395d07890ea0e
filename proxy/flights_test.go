package proxy

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"saltern/telemetry"
)

// TestFlightsAreNotJoinedAfterLanding: once a reading takes in what was written meanwhile, who comes
// later begins another one.
func TestFlightsAreNotJoinedAfterLanding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &Proxy{ctx: context.Background(), o: Options{}.withDefaults()}
		var g flights[int]
		answer := make(chan struct{})
		read := func(n int) func(context.Context, func()) (int, error) {
			return func(_ context.Context, landed func()) (int, error) {
				landed()
				<-answer
				return n, nil
			}
		}
		var callers sync.WaitGroup
		for n := range 3 {
			callers.Go(func() {
				if got, err := g.do(context.Background(), p, "job", &telemetry.Lookup{}, read(n)); got != n || err != nil {
					t.Errorf("reader %d got the answer %d, %v", n, got, err)
				}
			})
			synctest.Wait()
		}
		close(answer)
		callers.Wait()
		g.wait()
	})
}

// TestFlightsShareErrors: who joined gets the error too, and who comes after begins anew.
func TestFlightsShareErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &Proxy{ctx: context.Background(), o: Options{}.withDefaults()}
		var g flights[int]
		fails := make(chan struct{})
		errFailed := errors.New("failed")
		var callers sync.WaitGroup
		for range 10 {
			callers.Go(func() {
				_, err := g.do(context.Background(), p, "job", &telemetry.Lookup{}, func(context.Context, func()) (int, error) {
					<-fails
					return 0, errFailed
				})
				if !errors.Is(err, errFailed) {
					t.Errorf("error %v", err)
				}
			})
		}
		synctest.Wait()
		close(fails)
		callers.Wait()
		got, err := g.do(context.Background(), p, "job", &telemetry.Lookup{}, func(context.Context, func()) (int, error) { return 7, nil })
		if got != 7 || err != nil {
			t.Errorf("after a failure: %d, %v", got, err)
		}
		if joined := p.Stats.Coalesced.Load(); joined != 9 {
			t.Errorf("%d joined; want 9", joined)
		}
		g.wait()
	})
}
