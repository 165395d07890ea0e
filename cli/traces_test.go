package cli

import (
	"bytes"
	"context"
	"encoding/hex"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	v1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"saltern/configs"
	"saltern/telemetry"
	"saltern/testbed/rpcclient"
)

// receiver is a collector: the published OTLP service, over gRPC and HTTP.
type receiver struct {
	collector.UnimplementedTraceServiceServer
	mu    sync.Mutex // guards the rest
	raw   bytes.Buffer
	spans []*v1.Span
}

func (r *receiver) Export(
	_ context.Context, q *collector.ExportTraceServiceRequest,
) (*collector.ExportTraceServiceResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	raw, err := proto.Marshal(q)
	r.raw.Write(raw)
	for _, rs := range q.ResourceSpans {
		for _, ss := range rs.ScopeSpans {
			r.spans = append(r.spans, ss.Spans...)
		}
	}
	return &collector.ExportTraceServiceResponse{}, err
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, err := io.ReadAll(q.Body)
	var request collector.ExportTraceServiceRequest
	if err != nil || q.URL.Path != "/v1/traces" || proto.Unmarshal(body, &request) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	answer, _ := r.Export(q.Context(), &request)
	out, _ := proto.Marshal(answer)
	w.Header().Set("Content-Type", "application/x-protobuf")
	_, _ = w.Write(out)
}

// collect starts a receiver and gives its address for a protocol.
func collect(t *testing.T, protocol string) (*receiver, string) {
	t.Helper()
	r := &receiver{}
	if protocol != "grpc" {
		s := httptest.NewServer(r)
		t.Cleanup(s.Close)
		return r, s.URL
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	collector.RegisterTraceServiceServer(s, r)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	return r, "http://" + l.Addr().String()
}

func attributesOf(s *v1.Span) map[string]string {
	m := make(map[string]string)
	for _, a := range s.Attributes {
		m[a.Key] = a.Value.GetStringValue()
	}
	return m
}

const (
	tracedJID = "20270105120000000000"
	canary    = "c4n4ry-s3cr3t"
	parentID  = "00f067aa0ba902b7"
	parentOf  = "4bf92f3577b34da6a3ce929d0e0e4736"
)

// TestTracesReachACollector: what a collector receives of some calls, over both transports, and that
// nothing of a payload, a token or a password is in it, in a log or in a metric (S88, S95).
func TestTracesReachACollector(t *testing.T) {
	for _, protocol := range []string{"grpc", "http/protobuf"} {
		t.Run(protocol, func(t *testing.T) {
			r, address := collect(t, protocol)
			t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer "+canary)
			var log bytes.Buffer
			metrics := callTraced(t, slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
				func(c *configs.Config) { c.Traces.Endpoint, c.Traces.Protocol = address, protocol })
			checkSpans(t, r.spans)
			for what, text := range map[string]string{"traces": r.raw.String(), "log": log.String(), "metrics": metrics} {
				if strings.Contains(text, canary) {
					t.Errorf("a secret is in the %s", what)
				}
				if what != "log" && text == "" {
					t.Errorf("there are no %s", what)
				}
			}
		})
	}
}

// callTraced runs a daemon of which every call counts as slow, makes calls, stops it and gives its metrics.
func callTraced(t *testing.T, log *slog.Logger, change func(*configs.Config)) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sc") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	c := configs.Default()
	c.DataDir, c.Listen, c.HTTP = dir, []string{"unix:" + dir + "/s"}, "127.0.0.1:0"
	c.Traces.Slow = configs.Duration(1)
	change(c)
	d, err := open(c, log)
	if err != nil {
		t.Fatal(err)
	}
	rpc, err := rpcclient.Dial("unix", dir+"/s")
	if err != nil {
		t.Fatal(err)
	}
	defer rpc.Close()
	for _, call := range [][]any{
		{"save_load", map[string]any{"jid": tracedJID, "fun": "test.ping", "shape": "publish"},
			rpcclient.Packed(map[string]any{"arg": []any{canary}}), []any{"a"}},
		{"save_return", map[string]any{"jid": tracedJID, "id": "a", "fun": canary + " x"}, rpcclient.Packed(canary),
			rpcclient.Packed(map[string]any{}), rpcclient.Packed(map[string]any{})},
		{"get_load", tracedJID, map[string]any{"traceparent": "00-" + parentOf + "-" + parentID + "-01"}},
		{"get_load", "20270105120000000001"},
	} {
		if _, err := rpc.Call(t.Context(), call[0].(string), call[1:]...); err != nil {
			t.Fatalf("%s: %v", call[0], err)
		}
	}
	if _, err := rpc.Call(t.Context(), canary, canary); err == nil {
		t.Error("a method that there is not was answered")
	}
	var metrics []byte
	for _, path := range []string{"/healthz", "/v1/jobs/" + tracedJID, "/metrics"} {
		answer, err := http.Get("http://" + d.httpAddr + path)
		if err != nil {
			t.Fatal(err)
		}
		metrics, err = io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if err != nil || answer.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s, %v", path, answer.Status, err)
		}
	}
	if err := d.stop(); err != nil {
		t.Fatal(err)
	}
	return string(metrics)
}

func checkSpans(t *testing.T, spans []*v1.Span) {
	t.Helper()
	jobTrace := telemetry.JobTrace(tracedJID)
	byID, roots := make(map[string]*v1.Span), make(map[string][]*v1.Span)
	for _, s := range spans {
		byID[string(s.SpanId)] = s
		if s.EndTimeUnixNano < s.StartTimeUnixNano {
			t.Errorf("%s ends before it begins", s.Name)
		}
		if len(s.ParentSpanId) == 0 || s.Kind == v1.Span_SPAN_KIND_SERVER {
			roots[s.Name] = append(roots[s.Name], s)
		}
	}
	for _, s := range spans {
		p := byID[string(s.ParentSpanId)]
		if p == nil {
			continue
		}
		if !bytes.Equal(p.TraceId, s.TraceId) || s.StartTimeUnixNano < p.StartTimeUnixNano || s.EndTimeUnixNano > p.EndTimeUnixNano {
			t.Errorf("%s is not within its parent %s", s.Name, p.Name)
		}
	}
	for name, n := range map[string]int{"save_load": 1, "save_return": 1, "get_load": 2, "unknown": 1, "GET /v1/jobs/{jid}": 1} {
		if len(roots[name]) != n {
			t.Errorf("%d calls of %s were received; want %d", len(roots[name]), name, n)
		}
	}
	for name := range roots {
		if strings.Contains(name, "health") || strings.Contains(name, "metrics") {
			t.Errorf("%s makes spans", name)
		}
	}
	if t.Failed() {
		return
	}
	if save := roots["save_load"][0]; !bytes.Equal(save.TraceId, jobTrace[:]) {
		t.Errorf("save_load is in the trace %x; want that of its job", save.TraceId)
	}
	if under := roots["get_load"][0]; hex.EncodeToString(under.TraceId) != parentOf || hex.EncodeToString(under.ParentSpanId) != parentID {
		t.Errorf("get_load is in the trace %x under %x; want those of its caller", under.TraceId, under.ParentSpanId)
	} else if len(under.Events) != 1 || under.Events[0].Name != "memory hit" {
		t.Errorf("get_load has the events %v; want a hit in memory", under.Events)
	}
	misses := 0
	for _, s := range spans {
		if a := attributesOf(s); a["db.system.name"] == "embedded" && a["saltern.answer"] == "miss" {
			misses++
			if s.Status.GetCode() != v1.Status_STATUS_CODE_UNSET {
				t.Errorf("a miss has the status %v", s.Status)
			}
		}
	}
	if misses == 0 {
		t.Error("no miss of the store was received")
	}
}

// TestStopsThoughTheCollectorIsAway: a daemon stops in order whatever its collector does, and says that it
// does not take the traces (S95).
func TestStopsThoughTheCollectorIsAway(t *testing.T) {
	var log bytes.Buffer
	callTraced(t, slog.New(slog.NewTextHandler(&log, nil)), func(c *configs.Config) {
		c.Traces.Endpoint = "http://user:" + canary + "@127.0.0.1:1"
	})
	if !strings.Contains(log.String(), "the collector does not take traces") || strings.Contains(log.String(), canary) {
		t.Errorf("the log says\n%s", log.String())
	}
}

// TestReplayIsLinkedToItsWrites: a write that the journal alone acknowledged is a trace though it is neither
// slow nor sampled, and the replay links to it.
func TestReplayIsLinkedToItsWrites(t *testing.T) {
	r, address := collect(t, "grpc")
	traces, err := telemetry.OpenTraces(telemetry.TracesOptions{
		Endpoint: address, Protocol: "grpc", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	recorder := telemetry.NewRecorder(telemetry.RecorderOptions{Traces: traces, Slow: time.Hour})
	for _, tier := range []string{"cassandra", telemetry.Journal} {
		var c telemetry.Call
		c.Begin("save_return")
		l := telemetry.Lookup{Op: telemetry.Write, JID: tracedJID, Memory: telemetry.Skipped, Version: 7, Start: c.Start}
		l.Steps.Add(telemetry.Step{Tier: tier, Start: c.Start})
		c.Add(&l)
		recorder.Finish(&c)
	}
	traces.Replay("cassandra", time.Millisecond, []telemetry.WriteRef{{JID: tracedJID, Version: 7}})
	if err := traces.Close(); err != nil {
		t.Fatal(err)
	}
	named := make(map[string][]*v1.Span)
	for _, s := range r.spans {
		named[s.Name] = append(named[s.Name], s)
	}
	writes, replays := named["lookup write"], named["replay cassandra"]
	if len(writes) != 1 || len(replays) != 1 || len(replays[0].Links) != 1 {
		t.Fatalf("received %d writes and the replays %v; want one write and a replay with a link", len(writes), replays)
	}
	if link := replays[0].Links[0]; !bytes.Equal(link.SpanId, writes[0].SpanId) || !bytes.Equal(link.TraceId, writes[0].TraceId) {
		t.Errorf("the replay links to %x in %x; the write is %x in %x", link.SpanId, link.TraceId, writes[0].SpanId, writes[0].TraceId)
	}
}
