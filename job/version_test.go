package job_test

import (
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"saltern/job"
)

// wall is a wall clock that a test sets.
type wall struct{ now time.Time }

func (w *wall) time() time.Time { return w.now }

var noon = time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)

// TestClockOnlyGrows lets the wall clock jump both ways and stand still, and other nodes be ahead.
func TestClockOnlyGrows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &wall{now: noon}
		node := rapid.Uint64Range(0, job.MaxNode).Draw(t, "node")
		c := job.NewClock(node, w.time)
		var last job.Version
		for range rapid.IntRange(1, 50).Draw(t, "steps") {
			jump := rapid.Int64Range(-int64(time.Hour), int64(time.Hour)).Draw(t, "jump")
			if rapid.Bool().Draw(t, "moves") {
				w.now = w.now.Add(time.Duration(jump))
			}
			if rapid.Bool().Draw(t, "observes") {
				seen := job.VersionAt(w.now.Add(time.Duration(jump))) | job.Version(rapid.Uint64Range(0, 1<<20-1).Draw(t, "low"))
				c.Observe(seen)
				last = max(last, seen)
			}
			v := c.Next()
			switch {
			case v <= last:
				t.Fatalf("version %d is not after %d", v, last)
			case v < job.VersionAt(w.now):
				t.Fatalf("version %d is behind the wall clock", v)
			case uint64(v)&job.MaxNode != node:
				t.Fatalf("node %d in version %d; want %d", uint64(v)&job.MaxNode, v, node)
			case v > job.MaxVersion:
				t.Fatalf("version %d has more than 61 bits", v)
			}
			last = v
		}
	})
}

func TestClockDoesNotBelieveTheFarFuture(t *testing.T) {
	w := &wall{now: noon}
	c := job.NewClock(1, w.time)
	c.Observe(job.VersionAt(noon.Add(25 * time.Hour)))
	c.Observe(job.MaxVersion)
	c.Observe(1<<64 - 1)
	if got := c.Next().Time(); !got.Equal(noon) {
		t.Errorf("version of %v after versions of the far future; want %v", got, noon)
	}
	c.Observe(job.VersionAt(noon.Add(23 * time.Hour)))
	if got := c.Next().Time(); got.Before(noon.Add(23 * time.Hour)) {
		t.Errorf("version of %v; want it past the observed one, 23 h ahead", got)
	}
}

func TestClockOfLargeNode(t *testing.T) {
	c := job.NewClock(job.MaxNode+3, (&wall{now: noon}).time)
	if got := uint64(c.Next()) & job.MaxNode; got != 2 {
		t.Errorf("node %d; want the low bits, 2", got)
	}
}

// TestClocksNeverAgree gives out versions from many goroutines on two nodes whose wall clocks stand
// still.
func TestClocksNeverAgree(t *testing.T) {
	const workers, each = 8, 2000
	clocks := []*job.Clock{job.NewClock(1, (&wall{now: noon}).time), job.NewClock(2, (&wall{now: noon}).time)}
	given := make([][]job.Version, workers)
	var wg sync.WaitGroup
	for i := range workers {
		wg.Go(func() {
			for range each {
				given[i] = append(given[i], clocks[i%2].Next())
			}
		})
	}
	wg.Wait()
	seen := make(map[job.Version]bool, workers*each)
	for _, versions := range given {
		for i, v := range versions {
			if seen[v] {
				t.Fatalf("version %d was given out twice", v)
			}
			if i > 0 && v <= versions[i-1] {
				t.Fatalf("version %d after %d in one goroutine", v, versions[i-1])
			}
			seen[v] = true
		}
	}
}

func TestVersionAt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := time.UnixMilli(rapid.Int64Range(1577836800000, 3776860055551).Draw(t, "ms")).UTC()
		if got := job.VersionAt(at).Time(); !got.Equal(at) {
			t.Fatalf("VersionAt(%v).Time() = %v", at, got)
		}
	})
	for _, c := range []struct {
		at   time.Time
		want job.Version
	}{
		{time.Time{}, 0},
		{time.Date(2019, 12, 31, 23, 59, 59, 0, time.UTC), 0},
		{time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC), job.MaxVersion},
		{time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC), job.MaxVersion}, // 2^44 ms and more
	} {
		if got := job.VersionAt(c.at); got != c.want {
			t.Errorf("VersionAt(%v) = %d; want %d", c.at, got, c.want)
		}
	}
}
