package e2e

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"sync"
	"testing"
	"time"

	"saltern/testbed"
	"saltern/testbed/rpcclient"
)

// readyIn is what the project promises of a daemon that was killed.
const readyIn = 2 * time.Second

// TestKilledUnderLoad kills the daemon with SIGKILL while writers wait for their acknowledgements, again and again:
// whatever was acknowledged is there after each restart. SALTERN_LONG=1 kills 50 times instead of 10.
func TestKilledUnderLoad(t *testing.T) {
	if testing.Short() {
		t.Skip("kills a real daemon again and again")
	}
	kills := 10
	if os.Getenv("SALTERN_LONG") != "" {
		kills = 50
	}
	daemon := startDaemon(t, "kill")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var acked ledger
	var writers sync.WaitGroup
	for n := range 8 {
		writers.Go(func() { write(ctx, daemon, n, &acked) })
	}
	checked := 0
	slowest := time.Duration(0)
	for n := range kills {
		pause(t, time.Duration(50+rand.IntN(350))*time.Millisecond)
		if err := daemon.Kill(); err != nil {
			t.Fatal(err)
		}
		jobs := acked.all()
		start := time.Now()
		if err := daemon.Start(t.Context()); err != nil {
			t.Fatalf("after kill %d: %v", n+1, err)
		}
		took := time.Since(start)
		slowest = max(slowest, took)
		if took > readyIn {
			t.Errorf("after kill %d it took %v to be ready", n+1, took)
		}
		if err := readable(t.Context(), daemon, jobs[checked:]); err != nil {
			t.Fatalf("after kill %d: %v", n+1, err)
		}
		checked = len(jobs)
	}
	stop()
	writers.Wait()
	jobs := acked.all()
	if err := readable(t.Context(), daemon, jobs); err != nil {
		t.Fatalf("at the end: %v", err)
	}
	if err := eventsThere(t.Context(), daemon, jobs); err != nil {
		t.Fatal(err)
	}
	if len(jobs) < kills {
		t.Errorf("only %d jobs were acknowledged: there was no load", len(jobs))
	}
	t.Logf("%d kills, %d jobs of %d returns acknowledged and read again, ready within %v", kills, len(jobs), returnsOfJob, slowest)
}

// startDaemon starts a daemon in a bed of that name, which the end of the test takes away.
func startDaemon(t *testing.T, name string) *testbed.Daemon {
	t.Helper()
	program, err := salternBinary()
	if err != nil {
		t.Fatal(err)
	}
	bed, err := testbed.New(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := bed.Close(); err != nil {
			t.Error(err)
		}
	})
	daemon, err := testbed.NewDaemon(bed, testbed.DaemonOptions{Binary: program})
	if err != nil {
		t.Fatal(err)
	}
	if err := bed.Start(t.Context(), daemon); err != nil {
		t.Fatal(err)
	}
	return daemon
}

// returnsOfJob is how many minions return in each job of the load.
const returnsOfJob = 3

// ledger holds the jobs all of whose facts were acknowledged.
type ledger struct {
	mu   sync.Mutex
	jids []string
}

func (l *ledger) add(jid string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.jids = append(l.jids, jid)
}

func (l *ledger) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.jids...)
}

// pause lets the load run; how long is drawn by chance and asserts nothing.
func pause(t *testing.T, d time.Duration) {
	select {
	case <-t.Context().Done():
	case <-time.After(d):
	}
}

// write writes jobs until ctx ends, over a new connection after each kill.
func write(ctx context.Context, d *testbed.Daemon, writer int, acked *ledger) {
	for n := 0; ctx.Err() == nil; {
		c, err := rpcclient.Dial("unix", d.Socket)
		if err != nil {
			time.Sleep(5 * time.Millisecond)
			continue
		}
		for ; ctx.Err() == nil; n++ {
			at := time.Now().UTC()
			// The writer is the last digit, so that no two make the same jid.
			jid := fmt.Sprintf("%s%06d", at.Format("20060102150405"), at.Nanosecond()/1000/10*10+writer)
			if err := writeJob(ctx, c, jid); err != nil {
				break
			}
			acked.add(jid)
		}
		_ = c.Close()
	}
}

// writeJob writes a load, its returns and an event, and gives nil when all were acknowledged.
func writeJob(ctx context.Context, c *rpcclient.Client, jid string) error {
	load := rpcclient.Packed(map[string]any{"jid": jid, "fun": "test.echo", "tgt": "*", "arg": []any{jid}})
	header := map[string]any{"jid": jid, "shape": "publish", "fun": "test.echo", "tgt": "*", "tgt_type": "glob", "user": "root"}
	ids := make([]any, returnsOfJob)
	for n := range ids {
		ids[n] = minionID(n)
	}
	if _, err := c.Call(ctx, "save_load", header, load, ids); err != nil {
		return err
	}
	for n := range returnsOfJob {
		id := minionID(n)
		header := map[string]any{"jid": jid, "id": id, "fun": "test.echo", "retcode": 0, "success": true, "failed": false}
		rest := rpcclient.Packed(map[string]any{"jid": jid, "id": id, "fun": "test.echo", "retcode": 0, "success": true})
		if _, err := c.Call(ctx, "save_return", header, rpcclient.Packed(jid), rest, rpcclient.Packed(map[string]any{}), nil); err != nil {
			return err
		}
	}
	id := binary.BigEndian.AppendUint64(nil, uint64(time.Now().UnixMicro()))
	id = binary.BigEndian.AppendUint64(id, rand.Uint64())
	event := []any{id, "kill/" + jid, rpcclient.Packed(map[string]any{"jid": jid}), false}
	_, err := c.Call(ctx, "save_events", "kill_master", []any{event})
	return err
}

func minionID(n int) string { return fmt.Sprintf("minion-%d", n) }

// readable is nil when each job has its load and all its returns.
func readable(ctx context.Context, d *testbed.Daemon, jids []string) error {
	c, err := rpcclient.Dial("unix", d.Socket)
	if err != nil {
		return err
	}
	defer c.Close()
	for _, jid := range jids {
		answer, err := c.Call(ctx, "get_load", jid)
		if err != nil {
			return err
		}
		load, ok := answer.(map[string]any)
		if !ok || load["jid"] != jid || fmt.Sprint(load["Minions"]) != "[minion-0 minion-1 minion-2]" {
			return fmt.Errorf("the acknowledged load of %s is %v", jid, answer)
		}
		if answer, err = c.Call(ctx, "get_jid", jid, ""); err != nil {
			return err
		}
		page, ok := answer.([]any)
		if !ok || len(page) != 2 {
			return fmt.Errorf("get_jid gives %v", answer)
		}
		returns, _ := page[0].(map[string]any)
		for n := range returnsOfJob {
			if fields, ok := returns[minionID(n)].(map[string]any); !ok || fields["return"] != jid {
				return fmt.Errorf("of the acknowledged returns of %s there are %v", jid, returns)
			}
		}
	}
	return nil
}

// eventsThere is nil when the event of each job is there, once.
func eventsThere(ctx context.Context, d *testbed.Daemon, jids []string) error {
	r := &rig{daemon: d}
	seen := map[string]int{}
	query := url.Values{"tag": {"kill/*"}, "limit": {"1000"}}
	for {
		view, code, err := r.view(ctx, "/v1/events", query)
		if err != nil || code != 200 {
			return fmt.Errorf("/v1/events: %d, %w", code, err)
		}
		rows, _ := view["events"].([]any)
		for _, row := range rows {
			seen[fmt.Sprint(dig(row, "tag"))]++
		}
		next, ok := view["next"].(string)
		if !ok {
			break
		}
		query.Set("cursor", next)
	}
	for _, jid := range jids {
		if seen["kill/"+jid] != 1 {
			return fmt.Errorf("the acknowledged event of %s is there %d times", jid, seen["kill/"+jid])
		}
	}
	return nil
}
