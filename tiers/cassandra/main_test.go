package cassandra_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"saltern/testbed"
	"saltern/tiers/cassandra"
)

// node is the one Cassandra of this binary, started when a test first asks for it.
var node = struct {
	once sync.Once
	bed  *testbed.Bed
	c    *testbed.Cassandra
	err  error
}{}

func TestMain(m *testing.M) {
	code := m.Run()
	if node.bed != nil {
		if err := node.bed.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// real gives the Cassandra; it takes a user and a password, and TLS where one likes.
func real(t testing.TB) *testbed.Cassandra {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a real Cassandra")
	}
	node.once.Do(func() {
		node.bed, node.c, node.err = testbed.StartCassandra(context.Background(),
			testbed.CassandraOptions{Password: true, TLS: true})
	})
	if node.err != nil {
		t.Fatal(node.err)
	}
	return node.c
}

// own gives the Cassandra for a test that kills or hangs it.
func own(t testing.TB) *testbed.Cassandra {
	t.Helper()
	c := real(t)
	if c.External() {
		t.Skip("SALTERN_CASSANDRA is not ours to kill")
	}
	return c
}

var keyspaces atomic.Int64

// ownOptions are those of a store with a keyspace that nobody else uses. Its tables take seconds to make.
func ownOptions(t testing.TB) cassandra.Options {
	t.Helper()
	o := options(t)
	o.Keyspace = fmt.Sprintf("%s_%d", o.Keyspace, keyspaces.Add(1))
	return o
}

// options are those of a store in the keyspace that most tests share: their jobs have names of their own.
func options(t testing.TB) cassandra.Options {
	t.Helper()
	c := real(t)
	o := cassandra.Options{
		Hosts:             []string{c.Address()},
		Keyspace:          fmt.Sprintf("t%d", os.Getpid()),
		ReplicationFactor: 1,
		CreateSchema:      true,
		Timeout:           10 * time.Second,
		ConnectTimeout:    10 * time.Second,
		Logger:            slog.New(slog.DiscardHandler),
	}
	if !c.External() {
		o.User, o.PasswordFile = "cassandra", passwordFile(t, "cassandra\n")
	}
	return o
}

func passwordFile(t testing.TB, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// open gives a store that is ready. It is closed with the test.
func open(t testing.TB, o cassandra.Options) *cassandra.Store {
	t.Helper()
	s, err := cassandra.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	awaitReady(t, s, 2*time.Minute)
	return s
}

// awaitReady waits until the store can be asked.
func awaitReady(t testing.TB, s *cassandra.Store, patience time.Duration) {
	t.Helper()
	await(t, patience, s.Ready)
}

// await asks until there is no error. It is for real processes only.
func await(t testing.TB, patience time.Duration, ask func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := ask()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %v", patience, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
