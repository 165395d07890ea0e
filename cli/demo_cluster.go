package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"saltern/testbed"
)

// startCluster starts one Redis, one Cassandra with the tables in it, and two masters, each with its own Saltern.
func (d *demo) startCluster(ctx context.Context, bed *testbed.Bed) error {
	redis, err := testbed.NewRedis(bed, testbed.RedisOptions{})
	if err != nil {
		return err
	}
	cassandra, err := testbed.NewCassandra(bed, testbed.CassandraOptions{})
	if err != nil {
		return err
	}
	d.masters = []*demoMaster{{id: "east", minions: []string{"alpha", "beta"}}, {id: "west", minions: []string{"gamma"}}}
	files := make([]string, len(d.masters))
	for i, m := range d.masters {
		files[i] = filepath.Join(bed.Dir, m.id+".yaml")
		text := fmt.Sprintf(demoClusterConfig, m.id, i, redis.Address(), cassandra.Address())
		if err := os.WriteFile(files[i], []byte(text), 0o600); err != nil {
			return err
		}
		if err := d.describe(bed, m, "--config", files[i]); err != nil {
			return err
		}
	}
	if err := d.step("Redis starts", func() error { return bed.Start(ctx, redis) }); err != nil {
		return err
	}
	// The first time its jars are fetched, too.
	if err := d.step("Cassandra starts (half a minute)", func() error { return bed.Start(ctx, cassandra) }); err != nil {
		return err
	}
	if err := d.step("saltern schema apply", func() error { return applySchema(ctx, files[0]) }); err != nil {
		return err
	}
	if err := d.step("two Salterns start", func() error {
		return d.each(func(m *demoMaster) error { return bed.Start(ctx, m.daemon) })
	}); err != nil {
		return err
	}
	return d.step("two salt-masters, east with two minions and west with one, start (about 30 s)", func() error {
		return d.each(func(m *demoMaster) error { return bed.Start(ctx, m.salt) })
	})
}

// demoClusterConfig has the id of the master, its number and the addresses of the stores.
const demoClusterConfig = `master: %s
node: %d
redis:
  addresses: [%q]
cassandra:
  hosts: [%q]
  replication-factor: 1
`

// applySchema makes the tables, as a person does.
func applySchema(ctx context.Context, file string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	out, err := testbed.RunCommand(ctx, self, "schema", "apply", "--config", file)
	if err == nil && out.Code != 0 {
		err = fmt.Errorf("it ended with %d: %s", out.Code, harmlessLines(out.Stderr))
	}
	return err
}
