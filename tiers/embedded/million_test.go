package embedded_test

import (
	"context"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"saltern/job"
	"saltern/tiers"
	"saltern/tiers/embedded"
)

// TestMillionJobs fills a store with a million small jobs through 32 writers and looks at what that
// takes: files, memory, and the newest 100. It needs 2 GiB in the folder for temporary files.
func TestMillionJobs(t *testing.T) {
	if os.Getenv("SALTERN_LONG") != "1" {
		t.Skip("takes minutes; set SALTERN_LONG=1 to run it")
	}
	const n, writers = 1_000_000, 32
	dir := t.TempDir()
	s := open(t, embedded.Options{Dir: dir})
	began := time.Now()
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := w; i < n; i += writers {
				if _, err := s.Merge(context.Background(), smallJob(i)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	st := s.Stats()
	t.Logf("%d jobs in %v, %.1f merges an fsync", n, time.Since(began).Round(time.Second),
		float64(st.Commits)/float64(st.Fsyncs))
	report(t, s, dir)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	began = time.Now()
	s = open(t, embedded.Options{Dir: dir})
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("Open took %v; want 2 s at most", took)
	} else {
		t.Logf("Open in %v", took.Round(time.Millisecond))
	}
	report(t, s, dir)
	if jobs, err := s.Expire(t.Context(), time.Now()); jobs != 0 || err != nil {
		t.Errorf("Expire = %d, %v; these jobs are kept for ever", jobs, err)
	}
}

func report(t *testing.T, s *embedded.Store, dir string) {
	t.Helper()
	for _, f := range []tiers.Filter{
		{}, {Fun: "fun.7"}, {Minion: "minion-00500.example.com"}, {State: job.Failed}, {Loads: true},
	} {
		times := make([]time.Duration, 101)
		var page tiers.ListPage
		for i := range times {
			began := time.Now()
			var err error
			if page, err = s.List(t.Context(), f); err != nil {
				t.Fatal(err)
			}
			times[i] = time.Since(began)
		}
		slices.Sort(times)
		t.Logf("newest 100, fun %q minion %q state %q loads %v: %d found, p50 %v, worst %v",
			f.Fun, f.Minion, f.State, f.Loads, len(page.Jobs), times[50], times[100])
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	rss := statusMiB(t, "VmRSS:")
	t.Logf("%d files, %d MiB on disk, %d MiB resident, at most %d", len(files), s.Stats().DiskBytes>>20,
		rss, statusMiB(t, "VmHWM:"))
	if len(files) >= 200 {
		t.Errorf("%d files; want less than 200", len(files))
	}
	if rss >= 300 {
		t.Errorf("%d MiB resident; want less than 300", rss)
	}
}

// statusMiB is a line of /proc/self/status.
func statusMiB(t *testing.T, line string) int {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("reads the resident memory from /proc")
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), line)
	kib, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return kib >> 10
}
