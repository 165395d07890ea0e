package redis_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"saltern/job"
	"saltern/testbed"
	"saltern/tiers"
	"saltern/tiers/redis"
)

// shared is one Redis for all tests that do it no harm; each tier has a namespace of its own.
var (
	shared        *testbed.Redis
	sharedCluster func() (*testbed.RedisCluster, error)
)

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	bed, node, err := testbed.StartRedis(ctx, testbed.RedisOptions{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	shared = node
	var clusterBed *testbed.Bed
	sharedCluster = sync.OnceValues(func() (cluster *testbed.RedisCluster, err error) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		clusterBed, cluster, err = testbed.StartRedisCluster(ctx)
		return cluster, err
	})
	code := m.Run()
	if clusterBed != nil {
		err = clusterBed.Close()
	}
	if err := errors.Join(err, bed.Close()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

var namespaces atomic.Int64

// defaults completes options for tests: a machine that is busy must not make calls time out, and there is no
// guard but where it is tried.
func defaults(o redis.Options) redis.Options {
	if len(o.Addrs) == 0 {
		o.Addrs = []string{shared.Address()}
	}
	if o.Namespace == "" {
		o.Namespace = fmt.Sprintf("t%d-%d", os.Getpid(), namespaces.Add(1))
	}
	if o.Guard == 0 {
		o.Guard = -1
	}
	if o.ReadTimeout == 0 {
		o.ReadTimeout, o.DialTimeout, o.PoolTimeout = 20*time.Second, 20*time.Second, 20*time.Second
	}
	return o
}

func open(t testing.TB, o redis.Options) *redis.Tier {
	t.Helper()
	tier, err := redis.New(defaults(o))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tier.Close() })
	return tier
}

// start starts a Redis of the test's own.
func start(t testing.TB, o testbed.RedisOptions) *testbed.Redis {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if o.Config == nil {
		o.Config = []string{"maxclients 1000"} // any line: it is then not the one of SALTERN_REDIS
	}
	bed, node, err := testbed.StartRedis(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := bed.Close(); err != nil {
			t.Error(err)
		}
	})
	return node
}

// startCluster gives the cluster that tests have in common, started by the first.
func startCluster(t testing.TB) *testbed.RedisCluster {
	t.Helper()
	cluster, err := sharedCluster()
	if err != nil {
		t.Fatal(err)
	}
	return cluster
}

// raw is a client for looking at and spoiling what the tier keeps.
func raw(t testing.TB, node *testbed.Redis) *goredis.Client {
	t.Helper()
	c := goredis.NewClient(&goredis.Options{Addr: node.Address(), Protocol: 2})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

const jid = job.JID("20261201120000000000")

var base = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

func version(n int) job.Version { return job.VersionAt(base) + job.Version(n)<<10 }

func publish(jid job.JID, n int) job.Load {
	return job.Load{
		JID: jid, Version: version(n), Rank: job.RankPublish, Fun: "test.ping", Target: "*", TargetType: "glob",
		User: "root", Master: "m1", Keep: job.KeepForever, Payload: fmt.Appendf([]byte{0x81, 0xa1, 'n', 0xa4}, "%04d", n),
	}
}

func ret(jid job.JID, m job.Minion, n int) job.Return {
	return job.Return{
		JID: jid, Minion: m, Version: version(n), Fun: "test.ping", Master: "m1", Keep: job.KeepForever,
		Ret: fmt.Appendf([]byte{0xa4}, "%04d", n), Rest: []byte{0x80}, Times: []byte{0x80},
	}
}

// create fills a job without any fact, as for one that was just made.
func create(t testing.TB, tier *redis.Tier, jid job.JID) {
	t.Helper()
	fill(t, tier, tiers.Snapshot{Head: job.Head{JID: jid}, HasReturns: true})
}

func fill(t testing.TB, tier *redis.Tier, s tiers.Snapshot) {
	t.Helper()
	if err := tier.Fill(t.Context(), s); err != nil {
		t.Fatalf("Fill(%q) = %v", s.Head.JID, err)
	}
}

func merge(t testing.TB, tier *redis.Tier, facts ...job.Fact) {
	t.Helper()
	if _, err := tier.Merge(t.Context(), facts); err != nil {
		t.Fatalf("Merge = %v", err)
	}
}

// leaseOf reads a job that is not held and gives the lease, empty when there is none.
func leaseOf(t testing.TB, tier *redis.Tier, jid job.JID) string {
	t.Helper()
	_, err := tier.Head(t.Context(), jid)
	if !errors.Is(err, tiers.ErrNotFound) {
		t.Fatalf("Head(%q) = %v; want ErrNotFound", jid, err)
	}
	if miss, ok := errors.AsType[*tiers.Miss](err); ok {
		return miss.Lease
	}
	return ""
}

func isHeld(t testing.TB, tier *redis.Tier, jid job.JID) bool {
	t.Helper()
	_, err := tier.Head(t.Context(), jid)
	if err != nil && !errors.Is(err, tiers.ErrNotFound) {
		t.Fatalf("Head(%q) = %v", jid, err)
	}
	return err == nil
}
