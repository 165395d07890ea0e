package server

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"saltern/job"
	"saltern/telemetry"
	"saltern/tiers"
)

// Reader is the subset of the proxy that people's calls need.
type Reader interface {
	Head(ctx context.Context, jid job.JID) (job.Head, error)
	Returns(ctx context.Context, jid job.JID, q tiers.ReturnQuery) (tiers.ReturnPage, error)
	List(ctx context.Context, f tiers.Filter) (tiers.ListPage, error)
	Events(ctx context.Context, q tiers.EventQuery) (tiers.EventPage, error)
	LastFunctions(ctx context.Context, fun string) ([]job.LastFunction, error)
}

// HTTPOptions configure an HTTP server.
type HTTPOptions struct {
	Jobs Reader
	// Ready says why the daemon is not ready, nil when it is; default always ready.
	Ready func() error
	// Explainer says where a job is; nil where nobody can.
	Explainer Explainer
	// Telemetry takes the calls that were made, and has the metrics; nil for neither.
	Telemetry *telemetry.Recorder
	// Version is that of the daemon.
	Version string
	Logger  *slog.Logger
	// MaxInFlight is how many requests are worked on at a time, others are told busy; default 32.
	MaxInFlight int
	// Timeout bounds the work on one request; default 30 s.
	Timeout time.Duration
}

const (
	// maxHeaderBytes holds a jid and a minion id of the greatest length, percent-encoded.
	maxHeaderBytes = 32 << 10
	// readTimeout is for a whole request, which has no body.
	readTimeout = 5 * time.Second
	// writeTimeout is for reading the answer out of the store and sending it to a slow client.
	writeTimeout    = 2 * time.Minute
	httpIdleTimeout = 2 * time.Minute
)

// HTTP serves people's side: jobs, minions, events and health as JSON, read only. It is an
// http.Handler; Serve puts it on a listener.
//
//	GET /healthz                   the process is alive
//	GET /readyz                    it can answer; 503 with the reason when not
//	GET /metrics                   metrics for Prometheus
//	GET /v1/slow                   the slowest calls, or the latest slow ones, step by step
//	GET /v1/explain/{jid}          what each tier holds of a job
//	GET /v1/jobs                   jobs, newest first
//	GET /v1/jobs/{jid}             one job with the first of its returns
//	GET /v1/jobs/{jid}/returns     the returns alone
//	GET /v1/minions                what each minion did last
//	GET /v1/events                 events, newest first
//
// An answer with more to come has a "next", to be given back as cursor (lists) or after (returns,
// minions), and the whole address in its Link header. A page may be shorter than its limit, even
// empty, and still have a next. Errors are {"error":{"name","message"}} with the names of
// docs/protocol.md and "not-found". Payloads are shown as view.go says.
type HTTP struct {
	o        HTTPOptions
	mux      *http.ServeMux
	inFlight chan struct{}
	server   *http.Server
	serving  sync.WaitGroup
}

// NewHTTP makes a server.
func NewHTTP(o HTTPOptions) *HTTP {
	o.Logger = cmp.Or(o.Logger, slog.Default())
	o.MaxInFlight = cmp.Or(o.MaxInFlight, 32)
	o.Timeout = cmp.Or(o.Timeout, 30*time.Second)
	if o.Ready == nil {
		o.Ready = func() error { return nil }
	}
	h := &HTTP{o: o, mux: http.NewServeMux(), inFlight: make(chan struct{}, o.MaxInFlight)}
	h.mux.HandleFunc("GET /healthz", h.health)
	h.mux.HandleFunc("GET /readyz", h.ready)
	if o.Telemetry != nil {
		h.route("/v1/slow", h.listSlow)
		h.mux.Handle("GET /metrics", o.Telemetry.Metrics.Handler())
	}
	if o.Explainer != nil {
		h.route("/v1/explain/{jid}", h.explain)
	}
	h.route("/v1/jobs", h.listJobs)
	h.route("/v1/jobs/{jid}", h.showJob)
	h.route("/v1/jobs/{jid}/returns", h.showReturns)
	h.route("/v1/minions", h.listMinions)
	h.route("/v1/events", h.listEvents)
	h.server = &http.Server{
		Handler:           h,
		ReadHeaderTimeout: readTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       httpIdleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(o.Logger.Handler(), slog.LevelDebug),
	}
	return h
}

// Serve accepts connections until Shutdown. It takes over the listener and does not wait.
func (h *HTTP) Serve(l net.Listener) {
	h.serving.Go(func() {
		if err := h.server.Serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
			h.o.Logger.Error("http stopped", "addr", l.Addr().String(), "err", err)
		}
	})
}

// Shutdown stops accepting, lets the requests that are being worked on finish, and closes all
// connections, at the latest when ctx ends.
func (h *HTTP) Shutdown(ctx context.Context) error {
	err := h.server.Shutdown(ctx)
	if err != nil {
		err = fmt.Errorf("http requests were cut off: %w", errors.Join(err, h.server.Close()))
	}
	h.serving.Wait()
	return err
}

// ServeHTTP answers one request.
func (h *HTTP) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	head := w.Header()
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("Cache-Control", "no-store")
	head.Set("Cross-Origin-Resource-Policy", "same-origin")
	switch _, pattern := h.mux.Handler(r); {
	case !loopbackHost(r.Host):
		// A page of the internet can make a browser ask this address under a name of its own (DNS
		// rebinding); what it cannot do is send another Host than that name.
		h.fail(w, fmt.Errorf("%w: this is a service of this machine alone: ask it as localhost or 127.0.0.1",
			errForbidden))
	case pattern != "":
		h.mux.ServeHTTP(w, r)
	case h.knownPath(r):
		head.Set("Allow", "GET, HEAD")
		h.failAs(w, http.StatusMethodNotAllowed, errUnsupported, "only GET and HEAD are answered here")
	default:
		h.failAs(w, http.StatusNotFound, tiers.ErrNotFound,
			"no such address: there are /v1/jobs, /v1/jobs/JID, /v1/jobs/JID/returns, /v1/minions, /v1/events, /v1/slow, /v1/explain/JID, /metrics, /healthz and /readyz")
	}
}

// loopbackHost says whether a Host header names this machine from its own point of view.
func loopbackHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if strings.EqualFold(strings.TrimSuffix(host, "."), "localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// knownPath says whether the address would be answered for another method.
func (h *HTTP) knownPath(r *http.Request) bool {
	get := &http.Request{Method: http.MethodGet, URL: r.URL, Host: r.Host}
	_, pattern := h.mux.Handler(get)
	return pattern != ""
}

// answer is a body that is written once all that can fail has been done.
type answer struct {
	next string // the address of what follows this page, or empty
	body func(*jsonWriter)
}

// route answers an address of the API.
func (h *HTTP) route(path string, f func(r *http.Request) (answer, error)) {
	h.mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
		call := &telemetry.Call{HTTP: true}
		call.Begin(path)
		call.Traceparent = r.Header.Get("Traceparent")
		var err error
		defer func() { h.finish(call, err) }()
		select {
		case h.inFlight <- struct{}{}:
			defer func() { <-h.inFlight }()
		default:
			err = errBusy
			h.fail(w, err)
			return
		}
		defer h.recover(w, path)
		ctx, cancel := context.WithTimeout(telemetry.WithCall(r.Context(), call), h.o.Timeout)
		defer cancel()
		var a answer
		a, err = f(r.WithContext(ctx))
		if err != nil {
			h.fail(w, err)
			return
		}
		if a.next != "" {
			w.Header().Set("Link", "<"+a.next+`>; rel="next"`)
		}
		h.write(w, http.StatusOK, a.body)
	})
}

// finish ends the record of a request.
func (h *HTTP) finish(c *telemetry.Call, err error) {
	if err != nil {
		c.Error = errorName(err)
	}
	h.o.Telemetry.Finish(c)
}

// recover turns a panic, a fault of ours, into an answer, and the daemon goes on for the others.
func (h *HTTP) recover(w http.ResponseWriter, path string) {
	fault := recover()
	if fault == nil {
		return
	}
	h.o.Logger.Error("request panicked", "path", path, "fault", fmt.Sprintf("%T", fault), "stack", stack())
	if w.Header().Get("Content-Type") != "" {
		panic(http.ErrAbortHandler) // part of the answer may be out: all that is left is to cut it off
	}
	h.fail(w, fmt.Errorf("%w: internal fault, see the log of saltern", tiers.ErrUnavailable))
}

func (h *HTTP) health(w http.ResponseWriter, _ *http.Request) {
	h.write(w, http.StatusOK, h.status("ok"))
}

func (h *HTTP) ready(w http.ResponseWriter, _ *http.Request) {
	if err := h.o.Ready(); err != nil {
		h.retryLater(w)
		h.failAs(w, http.StatusServiceUnavailable, tiers.ErrUnavailable, err.Error())
		return
	}
	h.write(w, http.StatusOK, h.status("ready"))
}

func (h *HTTP) status(word string) func(*jsonWriter) {
	return func(j *jsonWriter) {
		j.begin('{')
		j.field("status", word)
		j.field("version", h.o.Version)
		j.end('}')
	}
}

// fail answers with an error, its name and its status.
func (h *HTTP) fail(w http.ResponseWriter, err error) {
	status := statusOf(err)
	if status == http.StatusServiceUnavailable || status == http.StatusTooManyRequests {
		h.retryLater(w)
	}
	h.failAs(w, status, err, err.Error())
}

// retryLater tells what may be tried again from what need not be.
func (h *HTTP) retryLater(w http.ResponseWriter) { w.Header().Set("Retry-After", "1") }

func (h *HTTP) failAs(w http.ResponseWriter, status int, kind error, message string) {
	h.write(w, status, func(j *jsonWriter) {
		j.begin('{')
		j.key("error")
		j.begin('{')
		j.field("name", errorName(kind))
		j.field("message", message)
		j.end('}')
		j.end('}')
	})
}

func (h *HTTP) write(w http.ResponseWriter, status int, body func(*jsonWriter)) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	out := bufio.NewWriterSize(w, 32<<10)
	body(newJSONWriter(out))
	_ = out.WriteByte('\n')
	_ = out.Flush() // the client went away; there is nobody to tell
}
