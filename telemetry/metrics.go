package telemetry

import (
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Metrics are what GET /metrics gives. Labels have few values, all known beforehand but the functions
// of returns, which are bounded. A nil Metrics takes everything and keeps nothing.
type Metrics struct {
	registry *prometheus.Registry
	about    []About

	tier     *prometheus.HistogramVec
	lookup   *prometheus.HistogramVec
	calls    *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	returns  *prometheus.CounterVec
	breakers *prometheus.CounterVec

	mu        sync.Mutex // guards functions
	functions map[string]struct{}
}

// buckets hold what a tier takes: a hit in memory, a disk, a network, a timeout. Scrapers that know
// native histograms get those, with 10 % wide buckets, instead.
var buckets = []float64{
	1e-7, 1e-6, 1e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 0.5, 1, 2.5, 10,
}

// NewMetrics makes the metrics, those of the Go runtime and of the process among them.
func NewMetrics() *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry(), functions: make(map[string]struct{})}
	histogram := func(name, help string, labels ...string) *prometheus.HistogramVec {
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: name, Help: help, Buckets: buckets,
			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 160,
			NativeHistogramMinResetDuration: time.Hour,
		}, labels)
		m.register(About{name, "histogram", labels, help}, h)
		return h
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		m.register(About{name, "counter", labels, help}, c)
		return c
	}
	m.tier = histogram("saltern_tier_seconds",
		"How long a tier took to answer. Of the cache in memory one of 64 reads is timed.", "tier", "op")
	m.lookup = histogram("saltern_lookup_seconds",
		"How long a read or write took that the cache in memory did not answer.", "op", "answer")
	m.calls = counter("saltern_calls_total",
		"Calls of clients by method, and by the name of the error, none for those that were answered.",
		"api", "method", "error")
	m.seconds = histogram("saltern_call_seconds", "How long calls of clients took.", "api", "method")
	m.returns = counter("saltern_returns_total",
		"Returns of minions that were stored, by function (the first 64, then other) and result.", "fun", "result")
	m.breakers = counter("saltern_breaker_changes_total",
		"Changes of a breaker by the state it changed to.", "tier", "calls", "to")
	m.registry.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// About says what a metric of ours is.
type About struct {
	Name   string
	Kind   string // counter, gauge or histogram
	Labels []string
	Help   string
}

func (m *Metrics) register(a About, c prometheus.Collector) {
	m.registry.MustRegister(c)
	m.about = append(m.about, a)
}

// All are the metrics that there are, but those of the Go runtime and of the process.
func (m *Metrics) All() []About { return m.about }

// Handler answers GET /metrics, with exemplars and native histograms for who asks for them.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		EnableOpenMetrics: true, MaxRequestsInFlight: 4, Timeout: 10 * time.Second,
	})
}

// Tier notes how long a tier took.
func (m *Metrics) Tier(tier string, op Op, took time.Duration) {
	if m != nil {
		m.tier.WithLabelValues(tier, op.String()).Observe(took.Seconds())
	}
}

// Lookup notes a read or write that went below the cache.
func (m *Metrics) Lookup(l *Lookup) {
	if m != nil {
		m.lookup.WithLabelValues(l.Op.String(), l.Answer.String()).Observe(l.Took.Seconds())
	}
}

// BreakerChanged notes a change of a breaker.
func (m *Metrics) BreakerChanged(tier, calls, to string) {
	if m != nil {
		m.breakers.WithLabelValues(tier, calls, to).Inc()
	}
}

// call notes a call. trace is the id of its trace, empty when it has none.
func (m *Metrics) call(c *Call, trace string) {
	if m == nil {
		return
	}
	api := "rpc"
	if c.HTTP {
		api = "http"
	}
	name := c.Error
	if name == "" {
		name = "none"
	}
	m.calls.WithLabelValues(api, c.Method, name).Inc()
	h := m.seconds.WithLabelValues(api, c.Method)
	if e, can := h.(prometheus.ExemplarObserver); can && trace != "" {
		e.ObserveWithExemplar(c.Took.Seconds(), prometheus.Labels{"trace_id": trace})
		return
	}
	h.Observe(c.Took.Seconds())
}

const (
	// maxFunctions bounds the label fun: minions choose what is in it.
	maxFunctions = 64
	// maxFunction is longer than the names of Salt's own functions.
	maxFunction = 64
)

// Return notes a return that was stored.
func (m *Metrics) Return(fun string, failed bool) {
	if m == nil {
		return
	}
	result := "ok"
	if failed {
		result = "failed"
	}
	m.returns.WithLabelValues(m.function(fun), result).Inc()
}

func (m *Metrics) function(fun string) string {
	const other = "other"
	if !isFunction(fun) {
		return other
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, known := m.functions[fun]; !known {
		if len(m.functions) >= maxFunctions {
			return other
		}
		m.functions[fun] = struct{}{}
	}
	return fun
}

// isFunction says whether a name is made as those of Salt's functions are: module.function. Whatever
// else a minion sent stays out of the metrics.
func isFunction(fun string) bool {
	dots := 0
	for _, r := range fun {
		switch {
		case r == '.':
			dots++
		case r == '_', r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
		default:
			return false
		}
	}
	return dots == 1 && len(fun) <= maxFunction
}
