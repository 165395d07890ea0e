package telemetry

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// TracesOptions configure Traces. What is empty is taken from the variables of OpenTelemetry
// (OTEL_EXPORTER_OTLP_ENDPOINT, _PROTOCOL, _HEADERS, _CERTIFICATE, …, OTEL_SERVICE_NAME,
// OTEL_RESOURCE_ATTRIBUTES).
type TracesOptions struct {
	// Endpoint is the URL of the collector.
	Endpoint string
	// Protocol is grpc or http/protobuf, the default.
	Protocol string
	Version  string // of the daemon
	Logger   *slog.Logger
}

// TracesWanted says whether a collector is named, in the options or in the environment.
func TracesWanted(endpoint string) bool {
	if os.Getenv("OTEL_SDK_DISABLED") == "true" || os.Getenv("OTEL_TRACES_EXPORTER") == "none" {
		return false
	}
	return cmp.Or(endpoint, os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT")) != ""
}

const (
	// maxQueue bounds the calls that wait to be exported; what comes then is dropped.
	maxQueue = 1024
	// maxBatch and flushEvery bound what goes in one export, and how long it waits.
	maxBatch   = 512
	flushEvery = 2 * time.Second
	// exportTimeout bounds one export, with its retries.
	exportTimeout = 10 * time.Second
)

// Traces makes spans of calls that were kept, and exports them. One goroutine does both; whoever offers
// a call never waits. A nil Traces takes nothing.
type Traces struct {
	o        TracesOptions
	exporter sdk.SpanExporter
	provider *sdk.TracerProvider
	tracer   trace.Tracer
	queue    chan func(context.Context, *Traces)
	ended    *ended

	cancel context.CancelFunc
	done   chan struct{} // closed when the goroutine has ended

	// Dropped are calls that found the queue full; Failed are spans that the collector did not take;
	// Exported those that it did.
	Dropped, Failed, Exported atomic.Uint64
	failing                   bool
}

// ended collects the spans that were ended: the last step of making them.
type ended struct{ spans []sdk.ReadOnlySpan }

func (e *ended) OnStart(context.Context, sdk.ReadWriteSpan) {}
func (e *ended) OnEnd(s sdk.ReadOnlySpan)                   { e.spans = append(e.spans, s) }
func (e *ended) Shutdown(context.Context) error             { return nil }
func (e *ended) ForceFlush(context.Context) error           { return nil }

// OpenTraces begins to export. The collector need not be there yet. Close ends it.
func OpenTraces(o TracesOptions) (*Traces, error) {
	ctx, cancel := context.WithCancel(context.Background())
	exporter, err := newExporter(ctx, o)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("traces: %s", withoutUserinfo(err))
	}
	about, err := resource.New(ctx, resource.WithAttributes(
		attribute.String("service.name", "saltern"), attribute.String("service.version", o.Version)),
		resource.WithHost(), resource.WithFromEnv())
	if err != nil {
		o.Logger.Warn("a part of what describes this service to the collector is missing", "err", err)
	}
	t := &Traces{
		o: o, exporter: exporter, ended: &ended{}, cancel: cancel, done: make(chan struct{}),
		queue: make(chan func(context.Context, *Traces), maxQueue),
	}
	t.provider = sdk.NewTracerProvider(sdk.WithSpanProcessor(t.ended), sdk.WithResource(about),
		sdk.WithSampler(sdk.AlwaysSample()), sdk.WithIDGenerator(ids{}))
	t.tracer = t.provider.Tracer("saltern")
	go t.run(ctx)
	return t, nil
}

func newExporter(ctx context.Context, o TracesOptions) (sdk.SpanExporter, error) {
	protocol := cmp.Or(o.Protocol, os.Getenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"),
		os.Getenv("OTEL_EXPORTER_OTLP_PROTOCOL"), "http/protobuf")
	switch protocol {
	case "grpc":
		var options []otlptracegrpc.Option
		if o.Endpoint != "" {
			options = append(options, otlptracegrpc.WithEndpointURL(o.Endpoint))
		}
		return otlptracegrpc.New(ctx, options...)
	case "http/protobuf":
		var options []otlptracehttp.Option
		if o.Endpoint != "" {
			options = append(options, otlptracehttp.WithEndpointURL(strings.TrimSuffix(o.Endpoint, "/")+"/v1/traces"))
		}
		return otlptracehttp.New(ctx, options...)
	default:
		return nil, fmt.Errorf("protocol %q: grpc or http/protobuf is needed", protocol)
	}
}

// offer takes a call, or drops it when too many wait. It says whether it was taken.
func (t *Traces) offer(k *Kept) bool {
	return t != nil && t.enqueue(func(ctx context.Context, t *Traces) { t.call(ctx, k) })
}

// Replay notes a write of the journal's replay, with the writes that it completes.
func (t *Traces) Replay(tier string, took time.Duration, writes []WriteRef) {
	if t == nil {
		return
	}
	end := time.Now()
	t.enqueue(func(ctx context.Context, t *Traces) { t.replay(ctx, tier, end, took, writes) })
}

func (t *Traces) enqueue(f func(context.Context, *Traces)) bool {
	select {
	case t.queue <- f:
		return true
	default:
		t.Dropped.Add(1)
		return false
	}
}

func (t *Traces) run(ctx context.Context) {
	defer close(t.done)
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case f := <-t.queue:
			f(ctx, t)
			if len(t.ended.spans) < maxBatch {
				continue
			}
		case <-tick.C:
		}
		t.export(ctx)
	}
}

// export gives the spans that there are to the collector. Those that it does not take are lost: they
// are counted, and the log says it once.
func (t *Traces) export(ctx context.Context) {
	spans := t.ended.spans
	if len(spans) == 0 {
		return
	}
	t.ended.spans = nil
	ctx, cancel := context.WithTimeout(ctx, exportTimeout)
	defer cancel()
	err := t.exporter.ExportSpans(ctx, spans)
	if err != nil {
		t.Failed.Add(uint64(len(spans)))
	} else {
		t.Exported.Add(uint64(len(spans)))
	}
	if failing := err != nil; failing != t.failing {
		t.failing = failing
		if failing {
			t.o.Logger.Warn("the collector does not take traces; they are dropped and counted", "err", withoutUserinfo(err))
		} else {
			t.o.Logger.Info("the collector takes traces again")
		}
	}
}

// closeTimeout bounds the last export: a collector that is away does not hold up a stop.
const closeTimeout = 2 * time.Second

// Close exports what waits, as far as that goes within two seconds.
func (t *Traces) Close() error {
	if t == nil {
		return nil
	}
	t.cancel()
	<-t.done
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	for len(t.queue) > 0 {
		(<-t.queue)(ctx, t)
	}
	t.export(ctx)
	return t.exporter.Shutdown(ctx)
}

var userinfo = regexp.MustCompile(`//[^/@\s]*@`)

// withoutUserinfo is the text of an error without the user and password of an address in it.
func withoutUserinfo(err error) string {
	return userinfo.ReplaceAllString(err.Error(), "//[redacted]@")
}

// Sources are the counts of what was exported and what was not. Without Traces all are 0.
func (t *Traces) Sources() []Source {
	read := func(of func(*Traces) *atomic.Uint64) func(func(float64, ...string)) {
		return func(emit func(float64, ...string)) {
			if t == nil {
				emit(0)
				return
			}
			emit(float64(of(t).Load()))
		}
	}
	return []Source{
		{Name: "saltern_traces_dropped_total", Help: "Calls that were to become traces and found the queue full.",
			Read: read(func(t *Traces) *atomic.Uint64 { return &t.Dropped })},
		{Name: "saltern_spans_exported_total", Help: "Spans that the collector took.",
			Read: read(func(t *Traces) *atomic.Uint64 { return &t.Exported })},
		{Name: "saltern_spans_failed_total", Help: "Spans that the collector did not take; they are lost.",
			Read: read(func(t *Traces) *atomic.Uint64 { return &t.Failed })},
	}
}

// SampleOr is the part of calls that the environment wants sampled (OTEL_TRACES_SAMPLER and _ARG), or
// else the one given. Slow and failed calls are kept whatever it is.
func SampleOr(sample float64) float64 {
	switch strings.TrimPrefix(os.Getenv("OTEL_TRACES_SAMPLER"), "parentbased_") {
	case "always_on":
		return 1
	case "always_off":
		return 0
	case "traceidratio":
		if ratio, err := strconv.ParseFloat(os.Getenv("OTEL_TRACES_SAMPLER_ARG"), 64); err == nil && ratio >= 0 {
			return min(ratio, 1)
		}
		return 1 // as the specification has it for an argument that is none
	}
	return sample
}
