package redis_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"saltern/job"
	"saltern/testbed"
	"saltern/tiers"
	"saltern/tiers/redis"
)

// eventually waits for what another process takes its time for.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !is() {
		if time.Now().After(deadline) {
			t.Fatalf("not within 30 s: %s", what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// TestForgetAll: what any client forgets no client reads, in every mode: the generation is checked with each
// call.
func TestForgetAll(t *testing.T) {
	cluster := startCluster(t)
	for _, o := range []redis.Options{
		{}, {Mode: redis.Cluster, Addrs: cluster.Addresses()},
	} {
		a, b := pair(t, o)
		for i := range 20 {
			name := job.JID(fmt.Sprintf("%s_%d", jid, i)) // of any node
			for _, tier := range []*redis.Tier{a, b} {
				create(t, tier, name)
			}
			merge(t, b, publish(name, 1))
			if !isHeld(t, a, name) {
				t.Fatal("not held")
			}
			if err := a.ForgetAll(t.Context()); err != nil {
				t.Fatal(err)
			}
			for who, tier := range map[string]*redis.Tier{"a": a, "b": b} {
				if isHeld(t, tier, name) {
					t.Errorf("%s still reads what was forgotten", who)
				}
			}
			// A write that comes with the old generation is made in the new one.
			create(t, a, name)
			if err := b.ForgetAll(t.Context()); err != nil {
				t.Fatal(err)
			}
			create(t, b, name)
			merge(t, a, publish(name, 2))
			if h, err := b.Head(t.Context(), name); err != nil || h.Load == nil {
				t.Errorf("Head = %+v, %v; want the fact that a client wrote that did not know the generation", h, err)
			}
		}
		if b.Stats().Generations == 0 {
			t.Error("no other generation was met: the test tests nothing")
		}
	}
}

// TestGenerationVanishes: evicted, or flushed.
func TestGenerationVanishes(t *testing.T) {
	o := defaults(redis.Options{})
	tier := open(t, o)
	create(t, tier, jid)
	if err := raw(t, shared).Del(t.Context(), "saltern:"+o.Namespace+":{generation}").Err(); err != nil {
		t.Fatal(err)
	}
	if isHeld(t, tier, jid) {
		t.Error("held though the generation is not known")
	}
	create(t, tier, jid)
	if !isHeld(t, tier, jid) {
		t.Error("not held in a new generation")
	}
}

func TestNamespaces(t *testing.T) {
	a, b := open(t, redis.Options{}), open(t, redis.Options{})
	create(t, a, jid)
	if isHeld(t, b, jid) {
		t.Error("a job of another namespace is read")
	}
	if err := b.ForgetAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !isHeld(t, a, jid) {
		t.Error("another namespace forgot our jobs")
	}
	for i, tier := range []*redis.Tier{a, b} {
		if ok, err := tier.Reserve(t.Context(), jid); !ok || err != nil {
			t.Errorf("Reserve in namespace %d = %v, %v", i, ok, err)
		}
	}
}

// TestClusterNodeDies: jobs of other nodes are read on, and those of the node fail until it is back.
func TestClusterNodeDies(t *testing.T) {
	cluster := startCluster(t)
	tier := open(t, redis.Options{
		Mode: redis.Cluster, Addrs: cluster.Addresses(), ReadTimeout: 300 * time.Millisecond,
		DialTimeout: 300 * time.Millisecond, PoolTimeout: 300 * time.Millisecond,
	})
	const jobs = 30
	name := func(i int) job.JID { return job.JID(fmt.Sprintf("%s_%d", jid, i)) }
	for i := range jobs {
		name := name(i)
		eventually(t, "held at first", func() bool {
			_ = tier.Fill(t.Context(), tiers.Snapshot{Head: job.Head{JID: name}, HasReturns: true})
			_, err := tier.Head(t.Context(), name)
			return err == nil
		})
	}
	if err := cluster.Nodes[2].Kill(); err != nil {
		t.Fatal(err)
	}
	failed := 0
	for i := range jobs {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		if _, err := tier.Head(ctx, name(i)); err != nil {
			failed++
			if !errors.Is(err, tiers.ErrUnavailable) && !errors.Is(err, tiers.ErrTimeout) && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Head = %v", err)
			}
		}
		cancel()
	}
	if failed == 0 {
		t.Error("no job was on the node that died: the test tests nothing")
	}
	if err := cluster.Nodes[2].Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all jobs can be asked for again", func() bool {
		for i := range jobs {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			_, err := tier.Head(ctx, name(i))
			cancel()
			if err != nil && !errors.Is(err, tiers.ErrNotFound) {
				return false
			}
		}
		return true
	})
}

// TestSentinelFailover: the new primary may lack what the old one acknowledged last, so nothing of it is read.
func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	bed, group, err := testbed.StartRedisSentinel(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := bed.Close(); err != nil {
			t.Error(err)
		}
	})
	tier := open(t, redis.Options{
		Mode: redis.Sentinel, MasterName: testbed.SentinelMaster, Addrs: []string{group.Sentinel.Address()},
		ReadTimeout: time.Second, DialTimeout: time.Second, PoolTimeout: time.Second,
	})
	create(t, tier, jid)
	eventually(t, "replicated", func() bool {
		_, errPrimary := group.Primary.Command(ctx, "WAIT", "1", "100")
		keys, err := group.Replica.Command(ctx, "KEYS", "*{"+string(jid)+"}h")
		return errPrimary == nil && err == nil && keys != ""
	})
	if err := group.Replica.Hang(); err != nil {
		t.Fatal(err)
	}
	merge(t, tier, publish(jid, 1)) // only the old primary has it
	if err := group.Primary.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := group.Replica.Continue(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the replica is asked as the primary", func() bool {
		h, err := tier.Head(ctx, jid)
		if err == nil && h.Load == nil {
			t.Fatal("a job is read that lacks what was written before the failover")
		}
		return errors.Is(err, tiers.ErrNotFound)
	})
	create(t, tier, jid)
	merge(t, tier, publish(jid, 2))
	if h, err := tier.Head(ctx, jid); err != nil || h.Load.Version != version(2) {
		t.Errorf("Head = %+v, %v; want what was written after the failover", h, err)
	}
}

// TestRestartFromFile: Redis comes back with what it had saved some time ago.
func TestRestartFromFile(t *testing.T) {
	t.Parallel()
	node := start(t, testbed.RedisOptions{})
	o := defaults(redis.Options{Addrs: []string{node.Address()}})
	a, b := open(t, o), open(t, o)
	create(t, a, jid)
	if _, err := node.Command(t.Context(), "SAVE"); err != nil {
		t.Fatal(err)
	}
	merge(t, a, publish(jid, 1))
	isHeld(t, b, jid) // b is connected too
	if err := node.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := node.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if keys, err := node.Command(t.Context(), "KEYS", "*{"+string(jid)+"}h"); keys == "" {
		t.Fatalf("the node did not read its file (%v): the test tests nothing", err)
	}
	for name, tier := range map[string]*redis.Tier{"a": a, "b": b, "new": open(t, o)} {
		for tier.Ping(t.Context()) != nil && t.Context().Err() == nil { // connections of before
		}
		if isHeld(t, tier, jid) {
			t.Errorf("%s reads a job that lacks what was written after the file was saved", name)
		}
	}
	// Later clients and connections know the server.
	create(t, a, jid)
	if !isHeld(t, open(t, o), jid) || !isHeld(t, b, jid) {
		t.Error("a job filled after the restart is not held")
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	node := start(t, testbed.RedisOptions{TLS: true})
	secure := &redis.TLS{CAFile: node.CA, CertFile: node.Cert, KeyFile: node.Cert}
	tier := open(t, redis.Options{Addrs: []string{node.Address()}, TLS: secure})
	create(t, tier, jid)
	if !isHeld(t, tier, jid) {
		t.Error("not held")
	}
	other := start(t, testbed.RedisOptions{Name: "other", TLS: true})
	for name, c := range map[string]*redis.TLS{
		"plain":                 nil,
		"authority of nobody":   {CAFile: other.CA, CertFile: node.Cert, KeyFile: node.Cert},
		"no certificate":        {CAFile: node.CA},
		"certificate of nobody": {CAFile: node.CA, CertFile: other.Cert, KeyFile: other.Cert},
		"name of another":       {CAFile: node.CA, CertFile: node.Cert, KeyFile: node.Cert, ServerName: "redis.example.com"},
	} {
		tier := open(t, redis.Options{Addrs: []string{node.Address()}, TLS: c})
		_, err := tier.Head(t.Context(), jid)
		if !errors.Is(err, tiers.ErrUnavailable) {
			t.Errorf("%s: Head = %v; want ErrUnavailable", name, err)
		} else if strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: the error has several lines: %q", name, err)
		}
	}
}

func TestOptions(t *testing.T) {
	for name, c := range map[string]struct {
		o    redis.Options
		want string
	}{
		"no address":    {redis.Options{}, "no address"},
		"two addresses": {redis.Options{Addrs: []string{"a:1", "b:1"}}, "2 addresses of a standalone"},
		"mode":          {redis.Options{Addrs: []string{"a:1"}, Mode: "raid"}, `mode "raid"`},
		"sentinel":      {redis.Options{Addrs: []string{"a:1"}, Mode: redis.Sentinel}, "set the master name"},
		"cluster":       {redis.Options{Addrs: []string{"a:1"}, Mode: redis.Cluster, DB: 1}, "database 1 of a cluster"},
		"user":          {redis.Options{Addrs: []string{"a:1"}, Username: "u"}, `user "u" needs a password file`},
		"namespace":     {redis.Options{Addrs: []string{"a:1"}, Namespace: "a{b"}, `namespace "a{b"`},
		"prefix":        {redis.Options{Addrs: []string{"a:1"}, KeyPrefix: "a*"}, `key prefix "a*"`},
		"half a pair":   {redis.Options{Addrs: []string{"a:1"}, TLS: &redis.TLS{CertFile: "f"}}, "need each other"},
		"timeout":       {redis.Options{Addrs: []string{"a:1"}, ReadTimeout: -1}, "read timeout of -1ns"},
		"pool":          {redis.Options{Addrs: []string{"a:1"}, PoolSize: -1}, "pool size -1"},
		"no authority":  {redis.Options{Addrs: []string{"a:1"}, TLS: &redis.TLS{CAFile: "/nowhere"}}, "/nowhere"},
		"no password":   {redis.Options{Addrs: []string{"a:1"}, SentinelPasswordFile: "/nowhere"}, "/nowhere"},
		"all at once":   {redis.Options{Mode: "raid", Namespace: "/"}, "no address"},
	} {
		tier, err := redis.New(c.o)
		if err == nil {
			_ = tier.Close()
			t.Errorf("%s: no error; want %q", name, c.want)
		} else if !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", name, err, c.want)
		}
	}
	_, err := redis.New(redis.Options{Mode: "raid", Namespace: "/"})
	if n := strings.Count(fmt.Sprint(err), "\n"); n != 2 {
		t.Errorf("three faults gave %v; want them all", err)
	}
}
