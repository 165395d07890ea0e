package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"saltern/testbed"
)

// config is what a configuration of saltern says of the stores.
type config struct {
	redis     []string
	mode      string // of Redis
	cassandra []string
}

// add describes a store, and notes its addresses.
func (c *config) add(bed *testbed.Bed, name string) (testbed.Service, error) {
	if strings.HasPrefix(name, "redis") && c.mode != "" {
		return nil, fmt.Errorf("%s: there is a Redis already, and saltern uses one", name)
	}
	switch name {
	case "redis":
		r, err := testbed.NewRedis(bed, testbed.RedisOptions{})
		if err != nil {
			return nil, err
		}
		c.redis, c.mode = []string{r.Address()}, "standalone"
		return r, nil
	case "redis-cluster":
		r, err := testbed.NewRedisCluster(bed)
		if err != nil {
			return nil, err
		}
		c.redis, c.mode = r.Addresses(), "cluster"
		return r, nil
	case "redis-sentinel":
		r, err := testbed.NewRedisSentinel(bed)
		if err != nil {
			return nil, err
		}
		c.redis, c.mode = []string{r.Sentinel.Address()}, "sentinel"
		return r, nil
	case "cassandra":
		if len(c.cassandra) > 0 {
			return nil, errors.New("cassandra is named twice")
		}
		n, err := testbed.NewCassandra(bed, testbed.CassandraOptions{})
		if err != nil {
			return nil, err
		}
		c.cassandra = []string{n.Address()}
		return n, nil
	default:
		return nil, fmt.Errorf("there is no store %q: redis, redis-cluster, redis-sentinel, cassandra", name)
	}
}

// addresses are those of a store that was added.
func (c *config) addresses(name string) []string {
	if name == "cassandra" {
		return c.cassandra
	}
	return c.redis
}

// useful says whether saltern can be configured with the stores.
func (c *config) useful() bool { return len(c.cassandra) > 0 }

// write writes a file for each master and gives their paths.
func (c *config) write(bed *testbed.Bed, masters int) ([]string, error) {
	ports, err := testbed.FreePorts(masters)
	if err != nil {
		return nil, err
	}
	files := make([]string, masters)
	for i := range files {
		name := fmt.Sprintf("m%d", i+1)
		files[i] = filepath.Join(bed.Dir, name+".yaml")
		if err := os.WriteFile(files[i], []byte(c.text(bed.Dir, name, i, ports[i])), 0o600); err != nil {
			return nil, err
		}
	}
	return files, nil
}

func (c *config) text(dir, name string, node, port int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "data-dir: %s\nlisten: [\"unix:%s\"]\nhttp: 127.0.0.1:%d\nmaster: %s\nnode: %d\n",
		filepath.Join(dir, name), filepath.Join(dir, name+".sock"), port, name, node)
	if c.mode != "" {
		fmt.Fprintf(&b, "redis:\n  addresses: [%s]\n  mode: %s\n", quoted(c.redis), c.mode)
		if c.mode == "sentinel" {
			fmt.Fprintf(&b, "  master-name: %s\n", testbed.SentinelMaster)
		}
	}
	// One node can hold one copy.
	fmt.Fprintf(&b, "cassandra:\n  hosts: [%s]\n  replication-factor: 1\n", quoted(c.cassandra))
	return b.String()
}

func quoted(addresses []string) string {
	all := make([]string, len(addresses))
	for i, a := range addresses {
		all[i] = fmt.Sprintf("%q", a)
	}
	return strings.Join(all, ", ")
}
