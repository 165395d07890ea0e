package proxy_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"saltern/policy"
	"saltern/proxy"
	"saltern/testbed"
	"saltern/tiers"
	"saltern/tiers/redis"
)

// S74: 5,000 reads at once find ten connections to a Redis that is well. Those that get none in time are passed on to the
// next tier; that says nothing about Redis, whose breaker stays closed.
func TestBurstLeavesTheBreakerOfAHealthyRedisClosed(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a real Redis")
	}
	bed, node, err := testbed.StartRedis(t.Context(), testbed.RedisOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := bed.Close(); err != nil {
			t.Error(err)
		}
	})
	tier, err := redis.New(redis.Options{Addrs: []string{node.Address()}, PoolSize: 10, ReadTimeout: 500 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	g := proxy.Guard(tier, proxy.GuardOptions{Timeout: 750 * time.Millisecond})
	defer func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	}()
	var wait sync.WaitGroup
	var mu sync.Mutex
	busy, start := 0, make(chan struct{})
	for range 5000 {
		wait.Go(func() {
			<-start
			_, err := g.Head(context.Background(), jid)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil, errors.Is(err, tiers.ErrNotFound):
			case errors.Is(err, tiers.ErrBusy):
				busy++
			default:
				if _, miss := errors.AsType[*tiers.Miss](err); !miss {
					t.Error(err)
				}
			}
		})
	}
	close(start)
	wait.Wait()
	if read, _, _ := g.States(); read != policy.Closed {
		t.Errorf("the breaker is %v; %d of 5000 reads got no connection", read, busy)
	}
	t.Logf("%d of 5000 reads got no connection in time", busy)
}
