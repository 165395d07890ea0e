package server

import (
	"context"
	"encoding/hex"
	"net/http"
	"time"

	"saltern/job"
	"saltern/proxy"
	"saltern/telemetry"
)

// Explainer is the subset of the proxy that says where a job is.
type Explainer interface {
	Explain(ctx context.Context, jid job.JID) ([]proxy.Explained, error)
}

// listSlow answers /v1/slow: the slowest calls of the last hour, or the latest that were slow or failed.
func (h *HTTP) listSlow(r *http.Request) (answer, error) {
	q := newQuery(r, "order", "method", "limit")
	order, method, limit := q.oneOf("order", "slowest", "latest"), q.str("method"), q.limit()
	if err := q.done(); err != nil {
		return answer{}, err
	}
	calls := h.o.Telemetry.Slow.Slowest(method)
	if order == "latest" {
		calls = h.o.Telemetry.Slow.Latest(method)
	}
	calls = calls[:min(len(calls), limit)]
	return answer{body: func(j *jsonWriter) {
		j.begin('{')
		j.key("calls")
		j.begin('[')
		for _, k := range calls {
			j.item()
			j.call(k)
		}
		j.end(']')
		j.end('}')
	}}, nil
}

func (j *jsonWriter) call(k *telemetry.Kept) {
	j.begin('{')
	j.field("method", k.Method)
	j.key("time")
	j.time(k.At)
	j.milliseconds("took_ms", k.Took)
	j.field("why", k.Why)
	j.field("error", k.Error)
	j.field("jid", k.JID())
	j.field("trace", k.TraceID())
	j.key("bytes")
	j.int(int64(k.Bytes))
	j.key("lookups")
	j.begin('[')
	for i := range k.Lookups() {
		j.item()
		j.lookup(k, &k.Lookups()[i])
	}
	j.end(']')
	j.end('}')
}

// lookup writes a lookup; starts are from the begin of the call. What was not timed has null.
func (j *jsonWriter) lookup(k *telemetry.Kept, l *telemetry.Lookup) {
	j.begin('{')
	j.field("op", l.Op.String())
	j.field("answer", l.Answer.String())
	j.field("memory", l.Memory.String())
	j.key("coalesced")
	j.bool(l.Coalesced)
	j.key("stale")
	j.bool(l.Stale)
	j.key("version")
	j.uint(l.Version)
	if l.Start == 0 {
		j.key("start_ms")
		j.raw("null")
		j.key("took_ms")
		j.raw("null")
	} else {
		j.milliseconds("start_ms", l.Start-k.Start)
		j.milliseconds("took_ms", l.Took)
	}
	j.key("steps")
	j.begin('[')
	for _, s := range l.Steps.All() {
		j.item()
		j.begin('{')
		j.field("tier", s.Tier)
		j.field("answer", s.Answer.String())
		j.field("breaker", s.Breaker)
		j.milliseconds("start_ms", s.Start-k.Start)
		j.milliseconds("took_ms", s.Took)
		j.end('}')
	}
	j.end(']')
	j.end('}')
}

func (j *jsonWriter) milliseconds(key string, d time.Duration) {
	j.key(key)
	j.float(float64(d.Microseconds()) / 1000)
}

// explain answers /v1/explain/{jid}: what each tier holds of a job, without changing any of it.
func (h *HTTP) explain(r *http.Request) (answer, error) {
	jid, err := jidOf(r)
	if err != nil {
		return answer{}, err
	}
	if err := newQuery(r).done(); err != nil {
		return answer{}, err
	}
	tiers, err := h.o.Explainer.Explain(r.Context(), jid)
	if err != nil {
		return answer{}, err
	}
	now := time.Now()
	trace := telemetry.JobTrace(string(jid))
	return answer{body: func(j *jsonWriter) {
		j.begin('{')
		j.field("jid", string(jid))
		j.field("trace", hex.EncodeToString(trace[:]))
		j.key("tiers")
		j.begin('[')
		for i := range tiers {
			j.item()
			j.explained(&tiers[i], now)
		}
		j.end(']')
		j.end('}')
	}}, nil
}

// explained writes what a tier says; what is not known is null.
func (j *jsonWriter) explained(e *proxy.Explained, now time.Time) {
	j.begin('{')
	j.field("tier", e.Tier)
	j.field("answer", e.Answer.String())
	j.key("error")
	if e.Err != nil {
		j.text(e.Err.Error())
	} else {
		j.raw("null")
	}
	j.orNull("version", e.Version != 0, func() { j.uint(uint64(e.Version)) })
	j.orNull("age_s", e.Version != 0, func() { j.float(now.Sub(e.Version.Time()).Seconds()) })
	j.orNull("returns", e.Held && e.Returns >= 0, func() { j.int(int64(e.Returns)) })
	j.orNull("bytes", e.Bytes > 0, func() { j.int(e.Bytes) })
	j.orNull("ttl_s", e.TTL > 0, func() { j.float(e.TTL.Seconds()) })
	j.key("stale")
	j.bool(e.Stale)
	j.key("behind")
	j.bool(e.Behind)
	j.orNull("pending", e.Pending >= 0, func() { j.int(int64(e.Pending)) })
	j.orNull("breakers", e.Read != "", func() {
		j.begin('{')
		j.field("read", e.Read)
		j.field("write", e.Write)
		j.field("list", e.List)
		j.end('}')
	})
	j.milliseconds("took_ms", e.Took)
	j.end('}')
}

func (j *jsonWriter) orNull(key string, known bool, write func()) {
	j.key(key)
	if !known {
		j.raw("null")
		return
	}
	write()
}
