package telemetry

import "github.com/prometheus/client_golang/prometheus"

// Source is a metric that somebody else counts: it is read when it is asked for.
type Source struct {
	Name   string
	Help   string
	Gauge  bool // it goes up and down; otherwise it only grows
	Labels []string
	// Read calls emit for each value with the values of Labels. It must not block for long.
	Read func(emit func(value float64, labels ...string))
}

// Add registers sources. It panics on a name that is there already.
func (m *Metrics) Add(sources ...Source) {
	for _, s := range sources {
		kind := "counter"
		if s.Gauge {
			kind = "gauge"
		}
		m.register(About{s.Name, kind, s.Labels, s.Help},
			&pulled{Source: s, desc: prometheus.NewDesc(s.Name, s.Help, s.Labels, nil)})
	}
}

// pulled is a Source as Prometheus collects it.
type pulled struct {
	Source
	desc *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (p *pulled) Describe(to chan<- *prometheus.Desc) { to <- p.desc }

// Collect implements prometheus.Collector.
func (p *pulled) Collect(to chan<- prometheus.Metric) {
	kind := prometheus.CounterValue
	if p.Gauge {
		kind = prometheus.GaugeValue
	}
	p.Read(func(value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(p.desc, kind, value, labels...)
	})
}
