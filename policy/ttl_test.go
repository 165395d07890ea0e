package policy_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"saltern/policy"
)

func TestTTL(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		name        string
		left, bound time.Duration
		sealed      bool
		want        time.Duration
	}{
		{"lives for ever, no one else writes", 0, 0, false, 0},
		{"lives for ever, another may write", 0, s, false, s},
		{"lives for ever, sealed", 0, s, true, 0},
		{"ends, no one else writes", 10 * s, 0, false, 10 * s},
		{"ends after the bound", 10 * s, s, false, s},
		{"ends before the bound", s, 10 * s, false, s},
		{"ends, sealed", 10 * s, s, true, 10 * s},
		{"has ended", -1, 0, false, -1},
		{"has ended, sealed", -10 * s, s, true, -1},
	} {
		if got := policy.TTL(c.left, c.bound, c.sealed); got != c.want {
			t.Errorf("%s: TTL(%v, %v, %v) = %v; want %v", c.name, c.left, c.bound, c.sealed, got, c.want)
		}
	}
}

// TestTTLBounds: a cache never keeps a job beyond its end, nor an unsealed one beyond the bound.
func TestTTLBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		left := time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(t, "left"))
		bound := time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(t, "bound"))
		sealed := rapid.Bool().Draw(t, "sealed")
		ttl := policy.TTL(left, bound, sealed)
		if ttl <= 0 || ttl > left || !sealed && ttl > bound {
			t.Fatalf("TTL(%v, %v, %v) = %v", left, bound, sealed, ttl)
		}
	})
}

func TestJitter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ttl := time.Duration(rapid.Int64Range(0, int64(1<<62)).Draw(t, "ttl"))
		r := rapid.Float64Range(0, 0.999999).Draw(t, "r")
		got := policy.Jitter(ttl, func() float64 { return r })
		// Nine tenths, but for what a float64 cannot hold of 2^62 ns.
		if got > ttl || got < ttl-ttl/10-ttl/1e6-1 {
			t.Fatalf("Jitter(%v) = %v with r = %v", ttl, got, r)
		}
	})
	for range 1000 {
		if r := policy.Random(); r < 0 || r >= 1 {
			t.Fatalf("Random() = %v", r)
		}
	}
}

// TestJitterSpreads is case S79: of 10,000 jobs that were cached in one second, no 100 ms see more
// than a tenth expire.
func TestJitterSpreads(t *testing.T) {
	const jobs, ttl = 10_000, time.Minute
	windows := make(map[time.Duration]int)
	for i := range jobs {
		r := float64(i*7919%jobs) / jobs // evenly spread, in no order
		expires := time.Duration(i)*time.Second/jobs + policy.Jitter(ttl, func() float64 { return r })
		windows[expires/(100*time.Millisecond)]++
	}
	for at, n := range windows {
		if n > jobs/10 {
			t.Errorf("%d of %d expire in the 100 ms from %v", n, jobs, at*100*time.Millisecond)
		}
	}
}
