package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"saltern/testbed"
	"saltern/testbed/rpcclient"
)

const (
	millionJobs = 1_000_000
	// Of a daemon that keeps a million small jobs with the default configuration.
	mostMemory = 300 << 20
	mostFiles  = 200
)

// TestMillionJobs fills a daemon with a million small jobs through its socket, each publish and each return
// acknowledged, and looks at what it takes and how fast it lists the newest.
func TestMillionJobs(t *testing.T) {
	if os.Getenv("SALTERN_LONG") == "" {
		t.Skip("takes minutes: SALTERN_LONG=1")
	}
	daemon := startDaemon(t, "million")
	start := time.Now()
	if err := fillWithJobs(t.Context(), daemon, millionJobs); err != nil {
		t.Fatal(err)
	}
	filled := time.Since(start)
	p50, err := newestHundred(t.Context(), daemon, 200)
	if err != nil {
		t.Fatal(err)
	}
	memory, err := residentBytes(daemon.PID())
	if err != nil {
		t.Fatal(err)
	}
	files, bytes, err := filesUnder(daemon.Data)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d jobs in %v; newest 100 over HTTP in %v (p50); %d MiB resident; %d files of %d MiB",
		millionJobs, filled.Round(time.Second), p50, memory>>20, files, bytes>>20)
	if memory > mostMemory {
		t.Errorf("%d MiB resident, more than %d", memory>>20, mostMemory>>20)
	}
	if files >= mostFiles {
		t.Errorf("%d files, not below %d", files, mostFiles)
	}
}

// fillWithJobs writes jobs of one minion over 64 connections, in the order of their jids.
func fillWithJobs(ctx context.Context, d *testbed.Daemon, jobs int) error {
	const writers = 64
	first := time.Now().UTC().Add(-time.Hour)
	var next atomic.Int64
	errs := make([]error, writers)
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			c, err := rpcclient.Dial("unix", d.Socket)
			if err != nil {
				errs[w] = err
				return
			}
			defer c.Close()
			for n := next.Add(1); n <= int64(jobs); n = next.Add(1) {
				at := first.Add(time.Duration(n) * time.Millisecond)
				jid := fmt.Sprintf("%s%06d", at.Format("20060102150405"), at.Nanosecond()/1000)
				if err := writeSmallJob(ctx, c, jid, minionID(int(n)%1000)); err != nil {
					errs[w] = err
					return
				}
			}
		})
	}
	all.Wait()
	return firstError(errs)
}

func firstError(errs []error) error {
	i := slices.IndexFunc(errs, func(err error) bool { return err != nil })
	if i < 0 {
		return nil
	}
	return errs[i]
}

func writeSmallJob(ctx context.Context, c *rpcclient.Client, jid, minion string) error {
	load := rpcclient.Packed(map[string]any{"jid": jid, "fun": "test.ping", "tgt": minion, "arg": []any{}, "user": "root"})
	header := map[string]any{"jid": jid, "shape": "publish", "fun": "test.ping", "tgt": minion, "tgt_type": "glob", "user": "root"}
	if _, err := c.Call(ctx, "save_load", header, load, []any{minion}); err != nil {
		return err
	}
	header = map[string]any{"jid": jid, "id": minion, "fun": "test.ping", "retcode": 0, "success": true}
	rest := rpcclient.Packed(map[string]any{"jid": jid, "id": minion, "fun": "test.ping", "retcode": 0, "success": true})
	_, err := c.Call(ctx, "save_return", header, rpcclient.Packed(true), rest, rpcclient.Packed(map[string]any{}), nil)
	return err
}

// newestHundred is the median time in which the newest hundred jobs come over HTTP.
func newestHundred(ctx context.Context, d *testbed.Daemon, times int) (time.Duration, error) {
	took := make([]time.Duration, times)
	for i := range took {
		start := time.Now()
		n, err := listedJobs(ctx, "http://"+d.HTTP+"/v1/jobs?limit=100")
		if err != nil {
			return 0, err
		}
		if n != 100 {
			return 0, fmt.Errorf("%d jobs in a page of 100", n)
		}
		took[i] = time.Since(start)
	}
	slices.Sort(took)
	return took[times/2], nil
}

func listedJobs(ctx context.Context, address string) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return 0, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	var list struct{ Jobs []json.RawMessage }
	err = json.NewDecoder(answer.Body).Decode(&list)
	return len(list.Jobs), err
}

func residentBytes(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, after, found := strings.Cut(string(text), "VmRSS:")
	var kB int64
	if _, err := fmt.Sscan(after, &kB); err != nil || !found {
		return 0, fmt.Errorf("no VmRSS of process %d: %w", pid, err)
	}
	return kB << 10, nil
}

func filesUnder(dir string) (files int, bytes int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		files, bytes = files+1, bytes+info.Size()
		return nil
	})
	return files, bytes, err
}
