package cli_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"saltern/cli"
	"saltern/job"
	"saltern/testbed/rpcclient"
)

// exported is all that a daemon has, as lines.
func (r *running) exported(t *testing.T) string {
	t.Helper()
	return saltern(t, "export", "json", "--http", r.http).wantCode(t, cli.ExitOK).stdout
}

// A backup that is taken while others write has all that was acknowledged before it, and the store made of it answers
// as the one did.
func TestBackupAndRestore(t *testing.T) {
	r := serve(t)
	now := time.Now()
	for i := range 300 {
		jid := string(job.NewJID(now.Add(-time.Duration(i) * time.Second)))
		r.publish(t, jid, "test.ping", "*", "alice", []any{i, "x"}, "alpha", "beta")
		r.giveBack(t, jid, "alpha", "test.ping", i%3, strings.Repeat("ä", i))
		r.call(t, "update_endtime", jid, "2026, Dec 05 10:00:00.000001", 0)
	}
	r.call(t, "save_reg", "m1", []byte("register"))
	r.call(t, "save_events", "m1", []any{[]any{
		append(timeOf(now), "12345678"...), "salt/auth", rpcclient.Packed(map[string]any{"a": 1}), false,
	}})
	before := r.exported(t)
	dir := filepath.Join(r.dir, "backup")

	ctx, stop := context.WithCancel(t.Context())
	writing := make(chan error, 1)
	go func() { writing <- r.write(ctx) }()
	saltern(t, "backup", dir, "--address", "unix:"+r.socket).wantCode(t, cli.ExitOK)
	stop()
	if err := <-writing; err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(filepath.Join(r.dir, "data", "checkpoints", "*")); len(left) > 0 {
		t.Errorf("the backup left %v behind", left)
	}
	saltern(t, "backup", dir, "--address", "unix:"+r.socket).wantCode(t, cli.ExitUsage)

	data := filepath.Join(r.dir, "restored")
	saltern(t, "restore", dir, "--data-dir", data).wantCode(t, cli.ExitOK)
	restored := serveIn(t, data)
	got := restored.exported(t)
	for line := range strings.Lines(before) {
		if !strings.Contains(got, line) {
			t.Fatalf("not in the restored store: %.300s", line)
		}
	}
	// Nothing else but what was written meanwhile.
	for line := range strings.Lines(got) {
		if !strings.Contains(before, line) && !strings.Contains(line, "meanwhile") {
			t.Fatalf("in the restored store alone: %.300s", line)
		}
	}
	reg, err := restored.rpc.Call(t.Context(), "load_reg", "m1")
	if err != nil || string(reg.([]byte)) != "register" {
		t.Errorf("load_reg gives %v, %v", reg, err)
	}
}

func timeOf(at time.Time) []byte {
	b := make([]byte, 8)
	for i, us := 7, uint64(at.UnixMicro()); i >= 0; i, us = i-1, us>>8 {
		b[i] = byte(us)
	}
	return b
}

// write publishes jobs on a connection of its own until it is told to stop.
func (r *running) write(ctx context.Context) error {
	c, err := rpcclient.Dial("unix", r.socket)
	if err != nil {
		return err
	}
	defer c.Close()
	for i := 0; ctx.Err() == nil; i++ {
		jid := fmt.Sprintf("%s_%d", job.NewJID(time.Now()), i)
		header := map[string]any{"jid": jid, "shape": "publish", "fun": "meanwhile", "keep": 0}
		load := rpcclient.Packed(map[string]any{"jid": jid, "fun": "meanwhile"})
		if _, err := c.Call(context.Background(), "save_load", header, load, []any{"alpha"}); err != nil {
			return err
		}
	}
	return nil
}

// A damaged backup is no store.
func TestRestoreRefusesDamage(t *testing.T) {
	r := serve(t)
	r.publish(t, string(job.NewJID(time.Now())), "test.ping", "*", "alice", nil, "alpha")
	dir := filepath.Join(r.dir, "backup")
	saltern(t, "backup", dir, "--address", "unix:"+r.socket).wantCode(t, cli.ExitOK)
	logs, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("the backup has no log: %v", err)
	}
	content, err := os.ReadFile(logs[0])
	if err != nil {
		t.Fatal(err)
	}
	content[len(content)/2] ^= 1
	if err := os.WriteFile(logs[0], content, 0o600); err != nil {
		t.Fatal(err)
	}
	o := saltern(t, "restore", dir, "--data-dir", filepath.Join(r.dir, "d1")).wantCode(t, cli.ExitFailed)
	wantContains(t, o.stderr, logs[0], "damaged")
	if err := os.Remove(filepath.Join(dir, "saltern-backup.json")); err != nil {
		t.Fatal(err)
	}
	o = saltern(t, "restore", dir, "--data-dir", filepath.Join(r.dir, "d2")).wantCode(t, cli.ExitUsage)
	wantContains(t, o.stderr, "no complete backup")
}
