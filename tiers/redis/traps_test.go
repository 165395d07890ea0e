package redis_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"saltern/job"
	"saltern/testbed"
	"saltern/tiers"
	"saltern/tiers/redis"
)

// Each test here pins one default of go-redis that has hurt somebody and is set otherwise in client.go.

// within fails the test when f takes as long as an hour-long timeout would: a minute is never reached.
func within(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Fatal("a call did not end with its context")
	}
}

// TestDeadlineEndsCall: by default the deadline of a context is ignored once a command was sent.
func TestDeadlineEndsCall(t *testing.T) {
	t.Parallel()
	node := start(t, testbed.RedisOptions{})
	tier := open(t, redis.Options{Addrs: []string{node.Address()}, ReadTimeout: time.Hour, DialTimeout: time.Hour})
	create(t, tier, jid)
	if err := node.Hang(); err != nil {
		t.Fatal(err)
	}
	within(t, func() {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if _, err := tier.Head(ctx, jid); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Head = %v; want the error of the context", err)
		}
	})
	if n := tier.Stats().Errors[redis.Canceled]; n != 1 {
		t.Errorf("%d calls counted as ended by their callers; want 1", n)
	}
	// The answer that came too late is not taken for that of the next call.
	if err := node.Continue(); err != nil {
		t.Fatal(err)
	}
	other := jid + "_1"
	if _, err := tier.Head(t.Context(), other); !errors.Is(err, tiers.ErrNotFound) {
		t.Errorf("Head of another job = %v; want ErrNotFound", err)
	}
	if h, err := tier.Head(t.Context(), jid); err != nil || h.JID != jid {
		t.Errorf("Head = %+v, %v", h, err)
	}
}

// TestReadTimeout: a Redis that hangs is given up after our own time, whatever time the caller has.
func TestReadTimeout(t *testing.T) {
	t.Parallel()
	node := start(t, testbed.RedisOptions{})
	tier := open(t, redis.Options{
		Addrs: []string{node.Address()}, ReadTimeout: 50 * time.Millisecond, DialTimeout: 20 * time.Second,
		PoolTimeout: 20 * time.Second,
	})
	create(t, tier, jid)
	if err := node.Hang(); err != nil {
		t.Fatal(err)
	}
	if _, err := tier.Head(t.Context(), jid); !errors.Is(err, tiers.ErrTimeout) {
		t.Errorf("Head = %v; want ErrTimeout", err)
	}
}

// TestFullPool: by default a call waits for a connection for a second longer than for an answer.
func TestFullPool(t *testing.T) {
	t.Parallel()
	node := start(t, testbed.RedisOptions{})
	tier := open(t, redis.Options{
		Addrs: []string{node.Address()}, PoolSize: 2, ReadTimeout: time.Hour, DialTimeout: time.Hour,
		PoolTimeout: 20 * time.Millisecond,
	})
	create(t, tier, jid)
	if err := node.Hang(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	const callers = 6
	errs := make(chan error, callers)
	for range callers {
		go func() {
			_, err := tier.Head(ctx, jid)
			errs <- err
		}()
	}
	within(t, func() {
		var waited, turnedAway int
		for range callers {
			switch err := <-errs; {
			case errors.Is(err, context.DeadlineExceeded):
				waited++
			case errors.Is(err, tiers.ErrUnavailable) && strings.Contains(err.Error(), "all 2 connections are in use"):
				turnedAway++
			default:
				t.Errorf("Head = %v", err)
			}
		}
		if waited != 2 || turnedAway != callers-2 {
			t.Errorf("%d calls waited and %d were turned away; want 2 and %d", waited, turnedAway, callers-2)
		}
	})
	if n := tier.Stats().Errors[redis.PoolBusy]; n != callers-2 {
		t.Errorf("%d calls counted that found no connection; want %d", n, callers-2)
	}
	if n := tier.Stats().Pool.Timeouts; n != callers-2 {
		t.Errorf("%d timeouts of the pool; want %d", n, callers-2)
	}
}

// TestOneDial: by default a port that refuses is dialled 20 times for one call.
func TestOneDial(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var dials atomic.Int64
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			dials.Add(1)
			_ = conn.Close()
		}
	}()
	defer listener.Close()
	tier := open(t, redis.Options{Addrs: []string{listener.Addr().String()}})
	_, err = tier.Head(t.Context(), jid)
	if !errors.Is(err, tiers.ErrUnavailable) {
		t.Errorf("Head = %v; want ErrUnavailable", err)
	}
	if n := dials.Load(); n != 1 {
		t.Errorf("%d dials for one call; want 1", n)
	}
	if n := tier.Stats().Errors[redis.Unreachable]; n != 1 {
		t.Errorf("errors = %v; want one of class unreachable", tier.Stats().Errors)
	}
}

// TestNothingListens: the call fails and says where, and the next one after a start works.
func TestNothingListens(t *testing.T) {
	t.Parallel()
	node := start(t, testbed.RedisOptions{})
	tier := open(t, redis.Options{Addrs: []string{node.Address()}})
	create(t, tier, jid)
	if err := node.Kill(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		_, err := tier.Head(t.Context(), jid)
		if !errors.Is(err, tiers.ErrUnavailable) {
			t.Fatalf("Head = %v; want ErrUnavailable", err)
		}
		if strings.Contains(err.Error(), "\n") {
			t.Errorf("the error has several lines: %q", err)
		}
	}
	if err := node.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	// Empty, and it knows no script of ours.
	if isHeld(t, tier, jid) {
		t.Error("an empty Redis holds a job")
	}
	create(t, tier, jid)
	if !isHeld(t, tier, jid) {
		t.Error("a job filled after the start is not held")
	}
}

// TestNothingButOurCommands: by default each connection asks for maintenance notifications and sends names of
// the library, which Redis 7.0 answers with errors.
func TestNothingButOurCommands(t *testing.T) {
	t.Parallel()
	node := start(t, testbed.RedisOptions{})
	tier := open(t, redis.Options{Addrs: []string{node.Address()}})
	create(t, tier, jid)
	isHeld(t, tier, jid)
	stats, err := node.Command(t.Context(), "INFO", "errorstats")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(stats, "\r\n") {
		if strings.HasPrefix(line, "errorstat_") && !strings.HasPrefix(line, "errorstat_NOSCRIPT:") {
			t.Errorf("Redis answered with an error: %s", line)
		}
	}
}

// TestMissIsNoError: go-redis gives an error for what is not there.
func TestMissIsNoError(t *testing.T) {
	tier := open(t, redis.Options{})
	if isHeld(t, tier, jid) {
		t.Error("held before it was filled")
	}
	if _, err := tier.Returns(t.Context(), jid, tiers.ReturnQuery{}); !errors.Is(err, tiers.ErrNotFound) {
		t.Errorf("Returns = %v; want ErrNotFound", err)
	}
	if ok, err := tier.Reserve(t.Context(), jid); !ok || err != nil {
		t.Errorf("Reserve = %v, %v; want true", ok, err)
	}
	if ok, err := tier.Reserve(t.Context(), jid); ok || err != nil {
		t.Errorf("Reserve again = %v, %v; want false", ok, err)
	}
	s := tier.Stats()
	if len(s.Errors) != 0 || s.Misses != 2 {
		t.Errorf("stats %+v; want 2 misses and no error", s)
	}
}

// TestPipelinesShareThePool: by default go-redis keeps 10 connections for pipelines on top of the pool.
func TestPipelinesShareThePool(t *testing.T) {
	cluster := startCluster(t)
	tier := open(t, redis.Options{Addrs: cluster.Addresses(), Mode: redis.Cluster, PoolSize: 2})
	create(t, tier, jid)
	errs := make(chan error)
	const callers = 16
	for range callers {
		go func() {
			var err error
			for range 50 {
				if _, err2 := tier.Head(t.Context(), jid); err2 != nil {
					err = err2
				}
			}
			errs <- err
		}()
	}
	for range callers {
		if err := <-errs; err != nil {
			t.Errorf("Head = %v", err)
		}
	}
	for _, n := range cluster.Nodes {
		list, err := n.Command(t.Context(), "CLIENT", "LIST", "TYPE", "normal")
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(list, "name=saltern"); got > 2 {
			t.Errorf("%s has %d connections; want at most the 2 of the pool", n.Name(), got)
		}
	}
}

// TestEndedContext: nothing is sent for a caller that has left.
func TestEndedContext(t *testing.T) {
	tier := open(t, redis.Options{})
	create(t, tier, jid)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, call := range map[string]func() error{
		"Head":    func() error { _, err := tier.Head(ctx, jid); return err },
		"Returns": func() error { _, err := tier.Returns(ctx, jid, tiers.ReturnQuery{}); return err },
		"Merge":   func() error { _, err := tier.Merge(ctx, []job.Fact{publish(jid, 1)}); return err },
		"Fill":    func() error { return tier.Fill(ctx, tiers.Snapshot{Head: job.Head{JID: jid}}) },
		"Evict":   func() error { return tier.Evict(ctx, jid) },
		"Reserve": func() error { _, err := tier.Reserve(ctx, jid); return err },
		"Bump":    func() error { return tier.ForgetAll(ctx) },
		"Ping":    func() error { return tier.Ping(ctx) },
	} {
		if err := call(); !errors.Is(err, context.Canceled) {
			t.Errorf("%s = %v; want context.Canceled", name, err)
		}
	}
}
