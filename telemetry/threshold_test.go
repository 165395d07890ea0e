package telemetry

import (
	"testing"
	"time"
)

// TestWindowKnowsTheLastMinute: the 99th percentile is that of the last minute, none with too few calls or after a
// pause, and never below what one call in a hundred takes.
func TestWindowKnowsTheLastMinute(t *testing.T) {
	var w window
	now := time.Second
	fill := func(n int, took time.Duration) {
		for range n {
			w.add(now, took)
		}
	}
	fill(985, time.Millisecond)
	fill(15, 80*time.Millisecond)
	if p := w.add(now, time.Millisecond); p != 0 {
		t.Errorf("in the first ten seconds it is %s; want none", p)
	}
	now += sliceFor
	if p := w.add(now, time.Millisecond); p < 80*time.Millisecond || p > 110*time.Millisecond {
		t.Errorf("with 15 of 1000 calls of 80 ms it is %s; want the bucket of those", p)
	}
	fill(2000, time.Millisecond)
	now += sliceFor
	if p := w.add(now, time.Millisecond); p < time.Millisecond || p > 2*time.Millisecond {
		t.Errorf("with 15 of 3000 calls of 80 ms it is %s; want the bucket of 1 ms", p)
	}
	now += time.Hour
	if p := w.add(now, time.Millisecond); p != 0 {
		t.Errorf("after an hour's pause it is %s; want none", p)
	}
}

// TestBucketsHoldTheirTimes: above is above each time of its bucket, by at most a quarter.
func TestBucketsHoldTheirTimes(t *testing.T) {
	for took := 4 * time.Microsecond; took < 10*time.Minute; took += took / 7 {
		if top := above(bucketOf(took)); top <= took || top > took+took/4+time.Microsecond {
			t.Errorf("%s is in a bucket up to %s", took, top)
		}
	}
}

func TestParseTraceparent(t *testing.T) {
	const trace, span = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	for _, c := range []struct {
		in          string
		sampled, ok bool
	}{
		{"00-" + trace + "-" + span + "-01", true, true},
		{"00-" + trace + "-" + span + "-00", false, true},
		{"cc-" + trace + "-" + span + "-01-what-comes", true, true}, // a version to come
		// None, as the specification has it.
		{"", false, false},
		{"00-" + trace + "-" + span, false, false},
		{"00-" + trace + "-" + span + "-01-more", false, false},
		{"ff-" + trace + "-" + span + "-01", false, false},
		{"00-00000000000000000000000000000000-" + span + "-01", false, false},
		{"00-" + trace + "-0000000000000000-01", false, false},
		{"00-4BF92F3577B34DA6A3CE929D0E0E4736-" + span + "-01", false, false},
		{"00-" + trace + "-" + span + "-0x", false, false},
	} {
		if _, sampled, ok := parseTraceparent(c.in); sampled != c.sampled || ok != c.ok {
			t.Errorf("parseTraceparent(%q) = %v, %v; want %v, %v", c.in, sampled, ok, c.sampled, c.ok)
		}
	}
}

// TestSlowIsBounded: of each method the slowest and the latest stay, in their order.
func TestSlowIsBounded(t *testing.T) {
	s := newSlow()
	begin := time.Now()
	for i := range 100 {
		k := &Kept{At: begin.Add(time.Duration(i) * time.Second)}
		k.Method, k.Took = "get_load", time.Duration((i*37)%100+1)*time.Millisecond
		s.add(k)
	}
	slow, late := s.Slowest("get_load"), s.Latest("")
	if len(slow) != slowest || slow[0].Took != 100*time.Millisecond || slow[slowest-1].Took != 85*time.Millisecond {
		t.Errorf("%d calls from %s; want the 16 from 100 ms to 85 ms", len(slow), slow[0].Took)
	}
	if len(late) != latest || late[0].At != begin.Add(99*time.Second) || late[latest-1].At != begin.Add(84*time.Second) {
		t.Errorf("%d calls, the first of %s; want the last 16, newest first", len(late), late[0].At)
	}
	k := &Kept{At: begin.Add(2 * time.Hour)}
	k.Method, k.Took = "get_load", time.Millisecond
	s.add(k)
	if left := s.Slowest("get_load"); len(left) != 1 {
		t.Errorf("%d calls are left after two hours; want 1", len(left))
	}
}

// TestFunctionsAreBounded: no minion can make more values of the label than there is room for, nor bring in what is
// no function.
func TestFunctionsAreBounded(t *testing.T) {
	m := NewMetrics()
	for _, odd := range []string{"", "ping", "a.b.c", "cmd.run rm -rf", "test.ping\n", "t\u00e9st.ping"} {
		if got := m.function(odd); got != "other" {
			t.Errorf("function(%q) = %q; want other", odd, got)
		}
	}
	for i := range 2 * maxFunctions {
		m.function("m.f" + string(rune('a'+i%26)) + string(rune('a'+i/26)))
	}
	if got := m.function("m.faa"); got != "m.faa" {
		t.Errorf("one of the first is %q", got)
	}
	if got := m.function("test.ping"); got != "other" || len(m.functions) != maxFunctions {
		t.Errorf("one too many is %q, of %d", got, len(m.functions))
	}
}
