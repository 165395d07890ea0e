package testbed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// slots is how many hash slots a Redis Cluster has.
const slots = 16384

// RedisCluster is a Redis Cluster of nodes that each have an equal part of the slots and no replica. It is a
// Service.
type RedisCluster struct {
	// Nodes can be killed, hung and started again one by one.
	Nodes []*Redis

	buses []int // ports of the cluster bus
}

// NewRedisCluster describes a cluster of three nodes.
func NewRedisCluster(b *Bed) (*RedisCluster, error) {
	const nodes = 3
	buses, err := FreePorts(nodes)
	if err != nil {
		return nil, err
	}
	c := &RedisCluster{buses: buses}
	for i, bus := range buses {
		node, err := NewRedis(b, RedisOptions{
			Name: fmt.Sprintf("redis-%d", i+1),
			Config: []string{
				"cluster-enabled yes", "cluster-port " + strconv.Itoa(bus), "cluster-node-timeout 2000",
				"cluster-config-file nodes.conf",
			},
		})
		if err != nil {
			return nil, err
		}
		c.Nodes = append(c.Nodes, node)
	}
	return c, nil
}

// StartRedisCluster starts a cluster in a bed of its own. The bed's Close stops it.
func StartRedisCluster(ctx context.Context) (*Bed, *RedisCluster, error) {
	b, err := New("redis")
	if err != nil {
		return nil, nil, err
	}
	c, err := NewRedisCluster(b)
	if err == nil {
		err = b.Start(ctx, c)
	}
	if err != nil {
		return nil, nil, errors.Join(err, b.Close())
	}
	return b, c, nil
}

// Name implements Service.
func (c *RedisCluster) Name() string { return "redis cluster" }

// Addresses are those of the nodes.
func (c *RedisCluster) Addresses() []string {
	addresses := make([]string, len(c.Nodes))
	for i, n := range c.Nodes {
		addresses[i] = n.Address()
	}
	return addresses
}

// Start implements Service: it returns when all nodes agree that the cluster is complete.
func (c *RedisCluster) Start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for i, n := range c.Nodes {
		// The cluster is made once; nodes that start again remember it.
		_, err := os.Stat(filepath.Join(n.dir, "nodes.conf"))
		if startErr := n.Start(ctx); startErr != nil {
			return startErr
		}
		if err == nil {
			continue
		}
		if err := c.join(ctx, i); err != nil {
			return fmt.Errorf("joining %s to the cluster: %w", n.Name(), err)
		}
	}
	for _, n := range c.Nodes {
		if err := n.process.await(ctx, 50*time.Millisecond, c.complete(n)); err != nil {
			return err
		}
	}
	return nil
}

// join gives the node its slots and makes it known to the first.
func (c *RedisCluster) join(ctx context.Context, i int) error {
	n, count := c.Nodes[i], len(c.Nodes)
	from, to := i*slots/count, (i+1)*slots/count-1
	if _, err := n.Command(ctx, "CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(from), strconv.Itoa(to)); err != nil {
		return err
	}
	if _, err := n.Command(ctx, "CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1)); err != nil {
		return err
	}
	if i == 0 {
		return nil
	}
	first := c.Nodes[0]
	_, err := n.Command(ctx, "CLUSTER", "MEET", "127.0.0.1", strconv.Itoa(first.port), strconv.Itoa(c.buses[0]))
	return err
}

func (c *RedisCluster) complete(n *Redis) func(context.Context) error {
	return func(ctx context.Context) error {
		info, err := n.Command(ctx, "CLUSTER", "INFO")
		if err != nil {
			return err
		}
		for _, want := range []string{"cluster_state:ok", "cluster_known_nodes:" + strconv.Itoa(len(c.Nodes))} {
			if !strings.Contains(info, want+"\r\n") {
				return fmt.Errorf("%s is not yet at %s", n.Name(), want)
			}
		}
		return nil
	}
}

// Stop implements Service.
func (c *RedisCluster) Stop() error {
	var errs []error
	for _, n := range c.Nodes {
		errs = append(errs, n.Stop())
	}
	return errors.Join(errs...)
}

// RedisSentinel is a primary with a replica, and a sentinel that makes the replica the primary when the primary
// has been away for a second. It is a Service.
type RedisSentinel struct {
	Primary, Replica, Sentinel *Redis
}

// SentinelMaster is the name of the primary that the sentinel watches.
const SentinelMaster = "saltern"

// NewRedisSentinel describes the three.
func NewRedisSentinel(b *Bed) (*RedisSentinel, error) {
	primary, err := NewRedis(b, RedisOptions{Name: "redis-primary", Config: []string{"repl-diskless-sync-delay 0"}})
	if err != nil {
		return nil, err
	}
	replica, err := NewRedis(b, RedisOptions{
		Name: "redis-replica", Config: []string{fmt.Sprintf("replicaof 127.0.0.1 %d", primary.port)},
	})
	if err != nil {
		return nil, err
	}
	monitor := fmt.Sprintf("sentinel monitor %s 127.0.0.1 %d 1", SentinelMaster, primary.port)
	sentinel, err := NewRedis(b, RedisOptions{Name: "redis-sentinel", Config: []string{
		monitor, "sentinel down-after-milliseconds " + SentinelMaster + " 1000",
		"sentinel failover-timeout " + SentinelMaster + " 5000",
	}})
	if err != nil {
		return nil, err
	}
	sentinel.mode = []string{"--sentinel"}
	return &RedisSentinel{Primary: primary, Replica: replica, Sentinel: sentinel}, nil
}

// StartRedisSentinel starts the three in a bed of their own. The bed's Close stops them.
func StartRedisSentinel(ctx context.Context) (*Bed, *RedisSentinel, error) {
	b, err := New("redis")
	if err != nil {
		return nil, nil, err
	}
	s, err := NewRedisSentinel(b)
	if err == nil {
		err = b.Start(ctx, s)
	}
	if err != nil {
		return nil, nil, errors.Join(err, b.Close())
	}
	return b, s, nil
}

// Name implements Service.
func (s *RedisSentinel) Name() string { return "redis sentinel" }

// Start implements Service: it returns when the sentinel knows the replica, without which there is no failover.
func (s *RedisSentinel) Start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for _, n := range []*Redis{s.Primary, s.Replica, s.Sentinel} {
		if err := n.Start(ctx); err != nil {
			return err
		}
	}
	return s.Sentinel.process.await(ctx, 100*time.Millisecond, func(ctx context.Context) error {
		known, err := s.Sentinel.Command(ctx, "SENTINEL", "REPLICAS", SentinelMaster)
		if err != nil {
			return err
		}
		if !strings.Contains(known, "master-link-status\nok") {
			return errors.New("the sentinel does not know the replica yet")
		}
		return nil
	})
}

// Stop implements Service.
func (s *RedisSentinel) Stop() error {
	return errors.Join(s.Sentinel.Stop(), s.Replica.Stop(), s.Primary.Stop())
}
