package cassandra

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/cassandra-gocql-driver/v2"
)

// TestDriverIsSetOnPurpose pins what we set of the driver, and that the driver's own choice is another one:
// where it changes its mind, the setting and its reason can go.
func TestDriverIsSetOnPurpose(t *testing.T) {
	o := Options{Hosts: []string{"127.0.0.1"}, Timeout: 700 * time.Millisecond, ConnectTimeout: 900 * time.Millisecond}
	if err := o.setDefaults(); err != nil {
		t.Fatal(err)
	}
	ours, err := o.cluster("ks", driverLog{slog.Default(), &sync.Map{}})
	if err != nil {
		t.Fatal(err)
	}
	theirs := gocql.NewCluster("127.0.0.1")
	for _, c := range []struct {
		name            string
		got, want, bare any
	}{
		{"timeout", ours.Timeout, 700 * time.Millisecond, theirs.Timeout},
		{"write timeout", ours.WriteTimeout, 700 * time.Millisecond, theirs.WriteTimeout},
		{"connect timeout", ours.ConnectTimeout, 900 * time.Millisecond, theirs.ConnectTimeout},
		{"reconnect interval", ours.ReconnectInterval, time.Second, theirs.ReconnectInterval},
		{"idempotence", ours.DefaultIdempotence, true, theirs.DefaultIdempotence},
		{"write coalescing", ours.WriteCoalesceWaitTime, time.Duration(0), theirs.WriteCoalesceWaitTime},
		{"skipping of metadata", ours.DisableSkipMetadata, true, theirs.DisableSkipMetadata},
		{"metadata", ours.Metadata.CacheMode, gocql.KeyspaceOnly, theirs.Metadata.CacheMode},
		{"logger", ours.Logger != nil, true, theirs.Logger != nil},
		{"retries", ours.RetryPolicy != nil, true, theirs.RetryPolicy != nil},
		{"host policy", ours.PoolConfig.HostSelectionPolicy != nil, true, theirs.PoolConfig.HostSelectionPolicy != nil},
	} {
		if !reflect.DeepEqual(c.got, c.want) {
			t.Errorf("%s = %v; want %v", c.name, c.got, c.want)
		}
		if reflect.DeepEqual(c.bare, c.want) {
			t.Errorf("%s: %v is the driver's own default now: ours is not needed", c.name, c.bare)
		}
	}
	// Thirty tries with growing waits made the making of a session last ten minutes (temporalio/temporal#10283).
	if p, ok := ours.ReconnectionPolicy.(*gocql.ConstantReconnectionPolicy); !ok || p.MaxRetries > 3 || p.Interval > time.Second {
		t.Errorf("reconnection policy = %+v", ours.ReconnectionPolicy)
	}
	if p := ours.PoolConfig.HostSelectionPolicy; !strings.Contains(reflect.TypeOf(p).String(), "tokenAware") {
		t.Errorf("host policy is %T; want a token-aware one", p)
	}
}

// TestPolicyIsNotShared: the driver takes a host policy for one session only, and panics on the second.
func TestPolicyIsNotShared(t *testing.T) {
	o := Options{Hosts: []string{"127.0.0.1"}}
	if err := o.setDefaults(); err != nil {
		t.Fatal(err)
	}
	a, errA := o.cluster("", nil)
	b, errB := o.cluster("", nil)
	if errA != nil || errB != nil {
		t.Fatal(errA, errB)
	}
	if a.PoolConfig.HostSelectionPolicy == b.PoolConfig.HostSelectionPolicy {
		t.Error("two sessions share a host policy")
	}
}

// TestBatchesNeedIdempotence pins the trap: a batch does not take the cluster's default.
func TestBatchesNeedIdempotence(t *testing.T) {
	b := (&gocql.Session{}).Batch(gocql.UnloggedBatch).Query("INSERT")
	if b.IsIdempotent() {
		t.Error("a statement of a batch is idempotent by itself now: sendRows need not say so")
	}
	b.Entries[0].Idempotent = true
	if !b.IsIdempotent() {
		t.Error("a batch of idempotent statements is not idempotent")
	}
}

func TestPasswordIsReadAnew(t *testing.T) {
	path := filepath.Join(t.TempDir(), "password")
	o := Options{User: "saltern", PasswordFile: path}
	for _, c := range []struct{ content, want string }{{"one\n", "one"}, {"two\r\n", "two"}, {" three ", " three "}} {
		if err := os.WriteFile(path, []byte(c.content), 0o600); err != nil {
			t.Fatal(err)
		}
		a, err := o.authenticator()
		if err != nil {
			t.Fatal(err)
		}
		if got := a.(gocql.PasswordAuthenticator); got.Username != "saltern" || got.Password != c.want {
			t.Errorf("of %q: user %q with %d bytes; want %d", c.content, got.Username, len(got.Password), len(c.want))
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := o.authenticator(); err == nil {
		t.Error("no file, and no error")
	}
}

func TestOptionsSayAllFaults(t *testing.T) {
	_, err := Open(Options{
		Keyspace: "No-Good", ReadConsistency: "SOME", WriteConsistency: "MOST", User: "u", TLS: &TLS{CertFile: "c"},
		ReplicationFactor: -1,
	})
	if err == nil {
		t.Fatal("Open takes what cannot work")
	}
	for _, part := range []string{"hosts", "No-Good", "SOME", "MOST", "password-file", "certificate", "-1"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not name %s", err, part)
		}
	}
}

func TestKeyspaceOf(t *testing.T) {
	for _, c := range []struct{ base, namespace, want string }{
		{"", "", "saltern"}, {"", "default", "saltern"}, {"salt", "", "salt"}, {"saltern", "west", "saltern_west"},
	} {
		if got := KeyspaceOf(c.base, c.namespace); got != c.want {
			t.Errorf("KeyspaceOf(%q, %q) = %q; want %q", c.base, c.namespace, got, c.want)
		}
	}
}

// TestDriverSaysItOnce: what is said with every attempt to reach a node is not logged each time.
func TestDriverSaysItOnce(t *testing.T) {
	var out bytes.Buffer
	l := driverLog{slog.New(slog.NewTextHandler(&out, nil)), &sync.Map{}}
	for range 3 {
		l.Error("Unable to reconnect control connection.", gocql.NewLogFieldString("node", "n1"))
	}
	l.Error("Something else.")
	if got := strings.Count(out.String(), "level=WARN"); got != 2 {
		t.Errorf("%d lines, want one of each:\n%s", got, out.String())
	}
}
