package moving_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"saltern/testbed"
)

// binary is built once for all tests.
var binary = sync.OnceValues(func() (string, error) { return testbed.BuildSaltern(context.Background(), binaryDir) })

var binaryDir string

func TestMain(m *testing.M) {
	var err error
	if binaryDir, err = os.MkdirTemp("", "st-bin-"); err != nil {
		panic(err)
	}
	code := m.Run()
	if err := os.RemoveAll(binaryDir); err != nil {
		panic(err)
	}
	os.Exit(code)
}

// rig is a daemon, and a Salt whose returners wrote the jobs.
type rig struct {
	env    string
	bed    *testbed.Bed
	daemon *testbed.Daemon
}

func newRig(t *testing.T, env string) *rig {
	t.Helper()
	program, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{}
	if r.env, err = testbed.PythonEnv(t.Context(), env); err != nil {
		t.Fatal(err)
	}
	if r.bed, err = testbed.New("move"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.bed.Close(); err != nil {
			t.Error(err)
		}
	})
	r.daemon = r.start(t, "saltern", program)
	return r
}

func (r *rig) start(t *testing.T, name, program string) *testbed.Daemon {
	t.Helper()
	d, err := testbed.NewDaemon(r.bed, testbed.DaemonOptions{Name: name, Binary: program})
	if err == nil {
		err = r.bed.Start(t.Context(), d)
	}
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// python runs testdata/moving.py. more are options beside those of every call.
func (r *rig) python(t *testing.T, do, kind string, opts map[string]any, more ...any) {
	t.Helper()
	opts["returner_dirs"] = []string{testbed.ReturnerDir()}
	given := map[string]any{"dir": r.bed.Dir, "address": r.daemon.Address(), "opts": opts}
	for i := 0; i < len(more); i += 2 {
		given[more[i].(string)] = more[i+1]
	}
	packed, err := json.Marshal(given)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(r.env, "bin", "python"), "testdata/moving.py", do, kind, string(packed))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", do, kind, err, out)
	}
}

// saltern runs the program and gives what it printed; it has to end with the code.
func saltern(t *testing.T, code int, args ...string) (stdout, stderr string) {
	t.Helper()
	program, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, args...)
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	_ = cmd.Run() // the code says it
	if got := cmd.ProcessState.ExitCode(); got != code {
		t.Fatalf("saltern %s ended with %d instead of %d\n%s%s", strings.Join(args, " "), got, code, out.String(), complaints.String())
	}
	return out.String(), complaints.String()
}

// imported runs an import and gives its figures.
func (r *rig) imported(t *testing.T, args ...string) map[string]any {
	t.Helper()
	args = append(append([]string{"import"}, args...), "--address", r.daemon.Address(), "--json", "--salt-config", r.bed.Dir)
	out, _ := saltern(t, 0, args...)
	var figures map[string]any
	if err := json.Unmarshal([]byte(out), &figures); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return figures
}

func wantFigures(t *testing.T, got map[string]any, want map[string]float64) {
	t.Helper()
	for name, n := range want {
		if got[name] != n {
			t.Errorf("%s is %v, want %v; all: %v", name, got[name], n, got)
		}
	}
}

// What local_cache wrote comes back through Saltern as local_cache gives it, from both versions of Salt, and is
// written back for local_cache to read.
func TestLocalCache(t *testing.T) {
	for _, version := range []string{"3008.4", "3006.29"} {
		t.Run(version, func(t *testing.T) {
			r := newRig(t, "salt-"+version)
			cache := map[string]any{"cachedir": filepath.Join(r.bed.Dir, "cache")}
			dir := cache["cachedir"].(string)
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			r.python(t, "write", "local_cache", cache)
			wantFigures(t, r.imported(t, "local_cache", dir, "--dry-run"), map[string]float64{"jobs": 120, "stored": 0})
			first := r.imported(t, "local_cache", dir)
			wantFigures(t, first, map[string]float64{"jobs": 120, "there": 0, "unreadable": 0, "expired": 0})
			r.python(t, "compare", "local_cache", cache)
			wantFigures(t, r.imported(t, "local_cache", dir), map[string]float64{"stored": 0, "there": first["stored"].(float64)})
			r.python(t, "compare", "local_cache", cache)

			back := filepath.Join(r.bed.Dir, "back")
			if err := os.Mkdir(back, 0o700); err != nil {
				t.Fatal(err)
			}
			for range 2 { // the second finds everything there
				saltern(t, 0, "export", "local_cache", back, "--address", r.daemon.Address())
				r.python(t, "compare", "local_cache", cache, "other", map[string]any{"cachedir": back})
			}
		})
	}
}

// The same of Salt's redis returner.
func TestRedis(t *testing.T) {
	r := newRig(t, "peers-3006.29")
	server, err := testbed.NewRedis(r.bed, testbed.RedisOptions{})
	if err == nil {
		err = r.bed.Start(t.Context(), server)
	}
	if err != nil {
		t.Fatal(err)
	}
	host, port, err := net.SplitHostPort(server.Address())
	if err != nil {
		t.Fatal(err)
	}
	opts := map[string]any{"redis.host": host, "redis.port": port}
	r.python(t, "write", "redis", opts)
	url := "redis://" + server.Address()
	first := r.imported(t, "redis", url)
	wantFigures(t, first, map[string]float64{"jobs": 120, "unreadable": 0, "there": 0})
	r.python(t, "compare", "redis", opts)
	wantFigures(t, r.imported(t, "redis", url), map[string]float64{"stored": 0, "there": first["stored"].(float64)})
}

// The same of Salt's cassandra_cql returner, without the apostrophes that it doubles.
func TestCassandra(t *testing.T) {
	r := newRig(t, "peers-3006.29")
	server, err := testbed.NewCassandra(r.bed, testbed.CassandraOptions{})
	if err == nil {
		err = r.bed.Start(t.Context(), server)
	}
	if err != nil {
		t.Fatal(err)
	}
	host, port, err := net.SplitHostPort(server.Address())
	if err != nil {
		t.Fatal(err)
	}
	saltTables(t, server.Address())
	opts := map[string]any{"cassandra": map[string]any{"cluster": []string{host}, "port": port}}
	r.python(t, "write", "cassandra_cql", opts)
	where := []string{"cassandra", "salt", "--hosts", host, "--port", fmt.Sprint(port)}
	first := r.imported(t, where...)
	wantFigures(t, first, map[string]float64{"jobs": 120, "unreadable": 0, "there": 0})
	r.python(t, "compare", "cassandra_cql", opts)
	wantFigures(t, r.imported(t, where...), map[string]float64{"stored": 0, "there": first["stored"].(float64)})
}
