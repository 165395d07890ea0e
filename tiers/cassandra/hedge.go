package cassandra

import (
	"context"
	"time"
)

// hedge makes a call, and the same call once more when there is no answer after a while; 0 never does. The first that
// succeeds is taken, and an error only when both have failed.
//
// The driver's own speculative execution takes whatever comes first: where it finds no second node, as in a cluster of
// which one is left, that is the error that there is none, and a read that is merely slow fails.
func hedge[T any](ctx context.Context, after time.Duration, call func(context.Context) (T, error)) (T, error) {
	if after <= 0 {
		return call(ctx)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type answer struct {
		value T
		err   error
	}
	answers := make(chan answer, 2)
	ask := func() {
		value, err := call(ctx)
		answers <- answer{value, err}
	}
	go ask()
	timer := time.NewTimer(after)
	defer timer.Stop()
	for underWay := 1; ; {
		select {
		case <-timer.C:
			underWay++
			go ask()
		case a := <-answers:
			if underWay--; a.err == nil || underWay == 0 {
				return a.value, a.err
			}
		}
	}
}
