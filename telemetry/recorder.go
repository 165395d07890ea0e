package telemetry

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"strings"
	"sync"
	"time"
)

// RecorderOptions configure a Recorder.
type RecorderOptions struct {
	Metrics *Metrics
	// Slow is from when on a call is kept; 0 for the 99th percentile of its method in the last minute,
	// and 100 ms while that has too few calls.
	Slow time.Duration
	// Sample is the part of the other calls that is kept for traces, 0 to 1.
	Sample float64
	// Traces takes the calls that are kept; nil for nobody.
	Traces *Traces
}

// fewSlow is what is slow when there are too few calls to tell.
const fewSlow = 100 * time.Millisecond

// Recorder takes the calls that were made, and keeps those that are worth it: the slow, the failed and
// a sample. A nil Recorder takes them too.
type Recorder struct {
	Metrics *Metrics
	Slow    *Slow

	o RecorderOptions

	mu      sync.RWMutex // guards methods
	methods map[string]*window
}

// NewRecorder makes a recorder.
func NewRecorder(o RecorderOptions) *Recorder {
	return &Recorder{Metrics: o.Metrics, Slow: newSlow(), o: o, methods: make(map[string]*window)}
}

// Why a call was kept.
const (
	WhySlow    = "slow"
	WhyFailed  = "failed"
	WhySampled = "sampled"
)

// Kept is a call that was kept.
type Kept struct {
	Call
	At    time.Time // when it began
	Why   string
	Trace [16]byte
	// Parent is the span of the client that asked, zero for none.
	Parent [8]byte
}

// TraceID is the id of the call's trace as W3C writes it.
func (k *Kept) TraceID() string { return hex.EncodeToString(k.Trace[:]) }

// Wall is a time by Now as a time of day.
func (k *Kept) Wall(t time.Duration) time.Time { return k.At.Add(t - k.Start) }

// Finish ends a call.
func (r *Recorder) Finish(c *Call) {
	if r == nil {
		return
	}
	end := Now()
	c.Took = end - c.Start
	parent, sampled, traced := parseTraceparent(c.Traceparent)
	why := r.why(c, end, sampled)
	if why == "" {
		r.Metrics.call(c, "")
		return
	}
	k := &Kept{Call: *c, At: time.Now().Add(-c.Took), Why: why}
	switch jid := c.JID(); {
	case traced:
		k.Trace, k.Parent = parent.trace, parent.span
	case jid != "":
		k.Trace = JobTrace(jid)
	default:
		binary.NativeEndian.PutUint64(k.Trace[:8], rand.Uint64())
		binary.NativeEndian.PutUint64(k.Trace[8:], rand.Uint64())
	}
	trace := ""
	if r.o.Traces.offer(k) {
		trace = k.TraceID()
	}
	r.Metrics.call(c, trace)
	if why != WhySampled {
		r.Slow.add(k)
	}
}

func (r *Recorder) why(c *Call, end time.Duration, sampled bool) string {
	slow := r.window(c).add(end, c.Took)
	switch {
	case r.o.Slow > 0:
		slow = r.o.Slow
	case slow == 0:
		slow = fewSlow
	}
	switch {
	case c.failed():
		return WhyFailed
	case c.Took >= slow:
		return WhySlow
	case sampled, r.o.Sample > 0 && rand.Float64() < r.o.Sample:
		return WhySampled
	}
	return ""
}

// window is that of a method: the methods of the two APIs have no name in common.
func (r *Recorder) window(c *Call) *window {
	r.mu.RLock()
	w := r.methods[c.Method]
	r.mu.RUnlock()
	if w != nil {
		return w
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if w = r.methods[c.Method]; w == nil {
		w = &window{}
		r.methods[c.Method] = w
	}
	return w
}

// JobTrace is the id of the trace of a job: the same wherever it is asked for, so that what all masters
// did for a job is one trace, found by its jid.
func JobTrace(jid string) (id [16]byte) {
	sum := sha256.Sum256([]byte("saltern job " + jid))
	copy(id[:], sum[:])
	return id
}

// writeSpan is the id of the span of a write, by the version of its first fact, which no other write
// has: a replay after a restart can name it too.
func writeSpan(version uint64) (id [8]byte) {
	sum := sha256.Sum256(binary.BigEndian.AppendUint64([]byte("saltern write "), version))
	copy(id[:], sum[:])
	return id
}

type spanRef struct {
	trace [16]byte
	span  [8]byte
}

// parseTraceparent reads W3C's header. What is none is as if there were none, as W3C has it.
func parseTraceparent(s string) (ref spanRef, sampled, ok bool) {
	parts := strings.Split(s, "-")
	if len(parts) < 4 || len(parts[0]) != 2 || parts[0] == "ff" || parts[0] == "00" && len(parts) != 4 ||
		len(parts[1]) != 32 || len(parts[2]) != 16 || len(parts[3]) != 2 || strings.ToLower(s) != s {
		return spanRef{}, false, false
	}
	var flags, version [1]byte
	for i, into := range [][]byte{version[:], ref.trace[:], ref.span[:], flags[:]} {
		if _, err := hex.Decode(into, []byte(parts[i])); err != nil {
			return spanRef{}, false, false
		}
	}
	if ref.trace == ([16]byte{}) || ref.span == ([8]byte{}) {
		return spanRef{}, false, false
	}
	return ref, flags[0]&1 == 1, true
}
