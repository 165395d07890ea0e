package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"saltern/cli"
	"saltern/testbed/rpcclient"
)

// Tables show local time; the tests' expectations are in UTC.
func TestMain(m *testing.M) {
	time.Local = time.UTC
	for _, name := range []string{"SALTERN_HTTP", "SALTERN_SALT_ENV", "COLUMNS"} {
		os.Unsetenv(name)
	}
	os.Exit(m.Run())
}

// outcome is what a command line gave.
type outcome struct {
	code           int
	stdout, stderr string
}

func saltern(t *testing.T, args ...string) outcome {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := cli.Main(t.Context(), args, &stdout, &stderr)
	return outcome{code, stdout.String(), stderr.String()}
}

func (o outcome) wantCode(t *testing.T, code int) outcome {
	t.Helper()
	if o.code != code {
		t.Fatalf("exit code %d instead of %d\nstdout: %s\nstderr: %s", o.code, code, o.stdout, o.stderr)
	}
	return o
}

func (o outcome) json(t *testing.T, into any) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(o.stdout))
	d.UseNumber()
	if err := d.Decode(into); err != nil {
		t.Fatalf("no JSON: %v\n%s", err, o.stdout)
	}
	if d.More() {
		t.Fatalf("more than one document:\n%s", o.stdout)
	}
}

func wantContains(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in:\n%s", part, text)
		}
	}
}

// running is a daemon in this process.
type running struct {
	dir, socket, http string
	rpc               *rpcclient.Client
}

// serve runs saltern serve until the test ends.
func serve(t *testing.T) *running {
	t.Helper()
	return serveWith(t, "")
}

// serveWith is serve with a configuration file.
func serveWith(t *testing.T, config string) *running {
	t.Helper()
	dir, err := os.MkdirTemp("", "sc") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return serveFrom(t, dir, filepath.Join(dir, "data"), config)
}

// serveIn is serve on a store that is there.
func serveIn(t *testing.T, data string) *running {
	t.Helper()
	return serveFrom(t, filepath.Dir(data), data, "")
}

func serveFrom(t *testing.T, dir, data, config string) *running {
	t.Helper()
	r := &running{dir: dir, socket: filepath.Join(dir, filepath.Base(data)+".sock")}
	file := filepath.Join(dir, "saltern.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	out := &notifier{ready: make(chan struct{})}
	var stderr bytes.Buffer
	var err error
	ended := make(chan int, 1)
	go func() {
		ended <- cli.Main(ctx, []string{"serve", "--config", file, "--data-dir", data,
			"--listen", "unix:" + r.socket, "--http", "127.0.0.1:0"}, out, &stderr)
	}()
	t.Cleanup(func() {
		stop()
		if code := <-ended; code != cli.ExitOK {
			t.Errorf("serve ended with %d: %s", code, stderr.String())
		}
	})
	select {
	case <-out.ready:
	case code := <-ended:
		ended <- code
		t.Fatalf("serve ended with %d: %s", code, stderr.String())
	}
	m := regexp.MustCompile(`http://([^/]+)/`).FindStringSubmatch(out.text())
	if m == nil {
		t.Fatalf("serve does not say where its HTTP is: %s", out.text())
	}
	r.http = m[1]
	if r.rpc, err = rpcclient.Dial("unix", r.socket); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.rpc.Close() })
	return r
}

// notifier is a buffer that says when something was written to it.
type notifier struct {
	mu    sync.Mutex
	buf   bytes.Buffer
	once  sync.Once
	ready chan struct{}
}

func (n *notifier) Write(p []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	defer n.once.Do(func() { close(n.ready) })
	return n.buf.Write(p)
}

func (n *notifier) text() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.buf.String()
}

func (r *running) call(t *testing.T, method string, params ...any) {
	t.Helper()
	if _, err := r.rpc.Call(t.Context(), method, params...); err != nil {
		t.Fatal(err)
	}
}

// publish stores a job as a master does.
func (r *running) publish(t *testing.T, jid, fun, tgt, user string, arg []any, minions ...any) {
	t.Helper()
	header := map[string]any{"jid": jid, "shape": "publish", "fun": fun, "tgt": tgt, "tgt_type": "glob",
		"user": user, "master": "m1", "keep": 0}
	load := map[string]any{"jid": jid, "fun": fun, "arg": arg, "tgt": tgt, "tgt_type": "glob", "user": user}
	r.call(t, "save_load", header, rpcclient.Packed(load), minions)
}

// giveBack stores what a minion returned.
func (r *running) giveBack(t *testing.T, jid, minion, fun string, retcode int, result any) {
	t.Helper()
	header := map[string]any{"jid": jid, "id": minion, "fun": fun, "master": "m1", "keep": 0,
		"retcode": retcode, "success": retcode == 0, "failed": retcode != 0}
	rest := map[string]any{"jid": jid, "id": minion, "fun": fun, "retcode": retcode, "success": retcode == 0}
	r.call(t, "save_return", header, rpcclient.Packed(result), rpcclient.Packed(rest),
		rpcclient.Packed(map[string]any{}), nil)
}
