package telemetry

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// ids gives the ids that the context names, and random ones where it names none.
type ids struct{}

type idsKey struct{}

func (ids) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	ref, _ := ctx.Value(idsKey{}).(spanRef)
	return ref.trace, spanOr(ref.span)
}

func (ids) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	ref, _ := ctx.Value(idsKey{}).(spanRef)
	return spanOr(ref.span)
}

func spanOr(id trace.SpanID) trace.SpanID {
	for !id.IsValid() {
		binary.NativeEndian.PutUint64(id[:], rand.Uint64())
	}
	return id
}

func withIDs(ctx context.Context, ref spanRef) context.Context {
	return context.WithValue(ctx, idsKey{}, ref)
}

// call makes the spans of a call: the call itself, under it each lookup that went below the cache in
// memory, and under that each tier that was asked. A hit in memory is an event: it takes less time than
// its span would.
func (t *Traces) call(ctx context.Context, k *Kept) {
	name, attributes := k.Method, []attribute.KeyValue{
		attribute.String("rpc.system.name", "msgpack-rpc"), attribute.String("rpc.method", "saltern/"+k.Method)}
	if k.HTTP {
		name, attributes = "GET "+k.Method, []attribute.KeyValue{
			attribute.String("http.request.method", "GET"), attribute.String("http.route", k.Method)}
	}
	attributes = append(attributes, attribute.String("saltern.kept", k.Why), attribute.Int("saltern.answer.bytes", k.Bytes))
	if jid := k.JID(); jid != "" {
		attributes = append(attributes, attribute.String("saltern.jid", jid))
	}
	if k.Parent != ([8]byte{}) {
		ctx = trace.ContextWithRemoteSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: k.Trace, SpanID: k.Parent, TraceFlags: trace.FlagsSampled, Remote: true}))
	}
	ctx, span := t.tracer.Start(withIDs(ctx, spanRef{trace: k.Trace}), name, trace.WithTimestamp(k.At),
		trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(attributes...))
	if k.Error != "" {
		span.SetAttributes(attribute.String("error.type", k.Error))
		if serverFault(k.Error) {
			span.SetStatus(codes.Error, k.Error)
		}
	}
	for i := range k.Lookups() {
		l := &k.lookups[i]
		if l.Memory == Hit || l.Memory == Absent {
			span.AddEvent("memory "+l.Memory.String(), trace.WithTimestamp(k.eventTime(l)),
				trace.WithAttributes(attribute.String("saltern.op", l.Op.String())))
			continue
		}
		t.lookup(ctx, k, l)
	}
	span.End(trace.WithTimestamp(k.At.Add(k.Took)))
}

// eventTime is when a hit in memory was, where it was timed, and else the begin of the call.
func (k *Kept) eventTime(l *Lookup) time.Time {
	if l.Start == 0 {
		return k.At
	}
	return k.Wall(l.Start)
}

// serverFault says whether the error of a call is a failure of ours, as a refusal of what was asked is not.
func serverFault(name string) bool {
	switch name {
	case "", "invalid", "unsupported", "forbidden", "not-found", "too-large":
		return false
	}
	return true
}

func (t *Traces) lookup(ctx context.Context, k *Kept, l *Lookup) {
	var ref spanRef
	if l.Op == Write && l.Version != 0 {
		ref.span = writeSpan(l.Version)
	}
	ctx, span := t.tracer.Start(withIDs(ctx, ref), "lookup "+l.Op.String(), trace.WithTimestamp(k.Wall(l.Start)),
		trace.WithAttributes(
			attribute.String("saltern.op", l.Op.String()), attribute.String("saltern.answer", l.Answer.String()),
			attribute.Bool("saltern.coalesced", l.Coalesced), attribute.Bool("saltern.stale", l.Stale),
			attribute.Int64("saltern.version", int64(l.Version))))
	if l.Answer.IsFault() {
		span.SetStatus(codes.Error, l.Answer.String())
	}
	ctx = withIDs(ctx, spanRef{})
	for _, s := range l.Steps.All() {
		t.step(ctx, k, l.Op, s)
	}
	span.End(trace.WithTimestamp(k.Wall(l.Start + l.Took)))
}

// step makes the span of a tier. A miss is an answer and no error: its status stays unset.
func (t *Traces) step(ctx context.Context, k *Kept, op Op, s Step) {
	_, span := t.tracer.Start(ctx, op.String()+" "+s.Tier, trace.WithTimestamp(k.Wall(s.Start)),
		trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
			attribute.String("db.system.name", s.Tier), attribute.String("db.operation.name", op.String()),
			attribute.String("saltern.answer", s.Answer.String())))
	if s.Breaker != "" {
		span.SetAttributes(attribute.String("saltern.breaker", s.Breaker))
	}
	if s.Answer.IsFault() {
		span.SetAttributes(attribute.String("error.type", s.Answer.String()))
		span.SetStatus(codes.Error, s.Answer.String())
	}
	span.End(trace.WithTimestamp(k.Wall(s.Start + s.Took)))
}

// WriteRef names a write: by the job and the version of its first fact.
type WriteRef struct {
	JID     string
	Version uint64
}

// maxLinks is what the SDK keeps of the links of one span.
const maxLinks = 128

// replay makes the span of a write of the journal's replay, in the trace of the first job in it, with
// a link to each write that it completes.
func (t *Traces) replay(ctx context.Context, tier string, end time.Time, took time.Duration, writes []WriteRef) {
	var ref spanRef
	var links []trace.Link
	for _, w := range writes[:min(len(writes), maxLinks)] {
		if w.JID == "" {
			continue
		}
		if ref.trace == ([16]byte{}) {
			ref.trace = JobTrace(w.JID)
		}
		links = append(links, trace.Link{SpanContext: trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: JobTrace(w.JID), SpanID: writeSpan(w.Version), TraceFlags: trace.FlagsSampled})})
	}
	if len(links) == 0 {
		return
	}
	_, span := t.tracer.Start(withIDs(ctx, ref), "replay "+tier, trace.WithTimestamp(end.Add(-took)),
		trace.WithSpanKind(trace.SpanKindClient), trace.WithLinks(links...), trace.WithAttributes(
			attribute.String("db.system.name", tier), attribute.String("db.operation.name", "write"),
			attribute.Int("saltern.writes", len(writes))))
	span.End(trace.WithTimestamp(end))
}
