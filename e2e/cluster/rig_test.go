package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"saltern/testbed"
)

// rig is two masters' daemons and the stores that they share.
type rig struct {
	bed       *testbed.Bed
	redis     *testbed.Redis
	cassandra *testbed.Cassandra
	a, b      *master
}

func (r *rig) masters() []*master { return []*master{r.a, r.b} }

// shared is the set of all tests; TestMain ends it.
var shared = sync.OnceValues(func() (*rig, error) {
	bed, err := testbed.New("cluster")
	if err != nil {
		return nil, err
	}
	r := &rig{bed: bed}
	if err := r.start(context.Background()); err != nil {
		return nil, errors.Join(err, bed.Close())
	}
	started = r
	return r, nil
})

var started *rig

func TestMain(m *testing.M) {
	code := m.Run()
	if started != nil {
		if err := started.stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// theRig gives the set with everything up.
func theRig(t *testing.T) *rig {
	t.Helper()
	if testing.Short() {
		t.Skip("it starts Redis, Cassandra and two daemons")
	}
	r, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	r.settle(t)
	t.Cleanup(func() {
		if t.Failed() {
			for _, m := range r.masters() {
				t.Logf("%s\n%s", m.daemon.Log(), testbed.Tail(m.daemon.Log(), 40))
			}
		}
	})
	return r
}

func (r *rig) start(ctx context.Context) error {
	var err error
	if r.redis, err = testbed.NewRedis(r.bed, testbed.RedisOptions{}); err != nil {
		return err
	}
	if r.cassandra, err = testbed.NewCassandra(r.bed, testbed.CassandraOptions{}); err != nil {
		return err
	}
	binary, err := testbed.BuildSaltern(ctx, r.bed.Dir)
	if err != nil {
		return err
	}
	if err := r.bed.Start(ctx, r.redis); err != nil {
		return err
	}
	if err := r.bed.Start(ctx, r.cassandra); err != nil {
		return err
	}
	for node, name := range []string{"a", "b"} {
		config := filepath.Join(r.bed.Dir, name+".yaml")
		if err := os.WriteFile(config, []byte(r.config(name, node)), 0o600); err != nil {
			return err
		}
		if node == 0 {
			out, err := testbed.RunCommand(ctx, binary, "schema", "apply", "--config", config)
			if err != nil || out.Code != 0 {
				return fmt.Errorf("schema apply: %w: %+v", err, out)
			}
		}
		d, err := testbed.NewDaemon(r.bed, testbed.DaemonOptions{
			Name: name, Binary: binary, Args: []string{"--config", config},
		})
		if err != nil {
			return err
		}
		if err := r.bed.Start(ctx, d); err != nil {
			return err
		}
		m := &master{name: name, daemon: d, took: map[string][]time.Duration{}}
		if node == 0 {
			r.a = m
		} else {
			r.b = m
		}
	}
	return nil
}

// config is what a person would write, for one node of Cassandra.
func (r *rig) config(name string, node int) string {
	return fmt.Sprintf(`master: %s
node: %d
redis:
  addresses: [%q]
cassandra:
  hosts: [%q]
  replication-factor: 1
`, name, node, r.redis.Address(), r.cassandra.Address())
}

// settle waits until both daemons reach Cassandra and nothing waits in their journals.
func (r *rig) settle(t *testing.T) {
	t.Helper()
	for _, m := range r.masters() {
		eventually(t, time.Minute, m.drained)
		eventually(t, time.Minute, func() error {
			_, err := m.list()
			return err
		})
	}
}

// stop ends everything and says what was left behind.
func (r *rig) stop() error {
	if err := r.bed.Close(); err != nil {
		return err
	}
	if _, err := os.Stat(r.bed.Dir); !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%s was left behind", r.bed.Dir)
	}
	return nil
}

// eventually asks until it gets nil, and fails with the last error after patience. It gives how long that took.
func eventually(t *testing.T, patience time.Duration, ask func() error) time.Duration {
	t.Helper()
	return eventuallyEach(t, 20*time.Millisecond, patience, ask)
}

// eventuallyEach is eventually with the pause between two questions.
func eventuallyEach(t *testing.T, pause, patience time.Duration, ask func() error) time.Duration {
	t.Helper()
	start := time.Now()
	for {
		err := ask()
		if err == nil {
			return time.Since(start)
		}
		if time.Since(start) > patience {
			t.Fatalf("not within %v: %v", patience, err)
		}
		time.Sleep(pause)
	}
}
