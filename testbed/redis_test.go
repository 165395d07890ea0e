package testbed_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"saltern/testbed"
)

func closeBed(t *testing.T, bed *testbed.Bed) {
	t.Helper()
	t.Cleanup(func() {
		if err := bed.Close(); err != nil {
			t.Error(err)
		}
	})
}

func redisContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// TestRedisLives takes a node through its life: hung, killed, started again on the same port and empty.
func TestRedisLives(t *testing.T) {
	ctx := redisContext(t)
	bed, node, err := testbed.StartRedis(ctx, testbed.RedisOptions{})
	if err != nil {
		t.Fatal(err)
	}
	closeBed(t, bed)
	if node.External() {
		t.Skip("SALTERN_REDIS is not ours to kill")
	}
	if _, err := node.Command(ctx, "SET", "a", "1"); err != nil {
		t.Fatal(err)
	}
	if err := node.Hang(); err != nil {
		t.Fatal(err)
	}
	if _, err := node.Command(ctx, "PING"); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("PING of a node that hangs = %v; want a timeout", err)
	}
	if err := node.Continue(); err != nil {
		t.Fatal(err)
	}
	if got, err := node.Command(ctx, "GET", "a"); got != "1" || err != nil {
		t.Errorf("GET = %q, %v after the node went on; want 1", got, err)
	}
	if err := node.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := node.Command(ctx, "PING"); err == nil {
		t.Error("a node that was killed answers")
	}
	if err := node.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if got, err := node.Command(ctx, "GET", "a"); got != "" || err != nil {
		t.Errorf("GET = %q, %v after a start; want an empty node", got, err)
	}
}

func TestRedisUsers(t *testing.T) {
	ctx := redisContext(t)
	bed, node, err := testbed.StartRedis(ctx, testbed.RedisOptions{Users: []string{"saltern on >secret ~* +@all"}})
	if err != nil {
		t.Fatal(err)
	}
	closeBed(t, bed)
	if _, err := node.Command(ctx, "PING"); err == nil || !strings.Contains(err.Error(), "NOAUTH") {
		t.Errorf("PING without a password = %v; want NOAUTH", err)
	}
}

func TestRedisCluster(t *testing.T) {
	ctx := redisContext(t)
	bed, cluster, err := testbed.StartRedisCluster(ctx)
	if err != nil {
		t.Fatal(err)
	}
	closeBed(t, bed)
	for i, key := range []string{"bar", "hello", "foo"} { // slots 5061, 866, 12182
		node := cluster.Nodes[[]int{0, 0, 2}[i]]
		if _, err := node.Command(ctx, "SET", key, "1"); err != nil {
			t.Errorf("SET %s at %s = %v", key, node.Name(), err)
		}
	}
	if _, err := cluster.Nodes[1].Command(ctx, "GET", "foo"); err == nil || !strings.Contains(err.Error(), "MOVED") {
		t.Errorf("GET at a node without the slot = %v; want MOVED", err)
	}
	if err := cluster.Nodes[1].Kill(); err != nil {
		t.Fatal(err)
	}
	if err := cluster.Nodes[1].Start(ctx); err != nil {
		t.Fatal(err)
	}
}

func TestRedisSentinel(t *testing.T) {
	ctx := redisContext(t)
	bed, group, err := testbed.StartRedisSentinel(ctx)
	if err != nil {
		t.Fatal(err)
	}
	closeBed(t, bed)
	if err := group.Primary.Kill(); err != nil {
		t.Fatal(err)
	}
	for {
		_, err := group.Replica.Command(ctx, "SET", "a", "1")
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("the replica was not made primary: %v", err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
