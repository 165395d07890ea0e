package testbed_test

import (
	"context"
	"net"
	"testing"
	"time"

	"saltern/testbed"
)

// TestCassandraLives takes a node through its life: killed, started again on the same port, stopped, and
// gone with its bed.
func TestCassandraLives(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a real Cassandra")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	bed, node, err := testbed.StartCassandra(ctx, testbed.CassandraOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := bed.Close(); err != nil {
			t.Error(err)
		}
	}()
	if node.External() {
		t.Skip("SALTERN_CASSANDRA is not ours to kill")
	}
	listens := func() bool {
		conn, err := net.DialTimeout("tcp", node.Address(), time.Second)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	}
	if err := node.Kill(); err != nil {
		t.Fatal(err)
	}
	if listens() {
		t.Error("killed, and its port still takes connections")
	}
	if err := node.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if !listens() {
		t.Error("started again, and nothing listens on its old port")
	}
	if err := bed.Close(); err != nil {
		t.Fatal(err)
	}
	if listens() {
		t.Error("the bed is closed, and its port still takes connections")
	}
}
