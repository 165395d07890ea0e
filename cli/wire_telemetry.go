package cli

import (
	"log/slog"
	"time"

	"saltern/configs"
	"saltern/job"
	"saltern/telemetry"
)

// openTelemetry opens what the daemon tells of itself. It comes first and goes last.
func (d *daemon) openTelemetry(c *configs.Config, log *slog.Logger) error {
	m := telemetry.NewMetrics()
	if telemetry.TracesWanted(c.Traces.Endpoint) {
		var err error
		d.traces, err = telemetry.OpenTraces(telemetry.TracesOptions{
			Endpoint: c.Traces.Endpoint, Protocol: c.Traces.Protocol, Version: versionString(), Logger: log,
		})
		if err != nil {
			return err
		}
	}
	d.telemetry = telemetry.NewRecorder(telemetry.RecorderOptions{
		Metrics: m, Traces: d.traces, Slow: c.Traces.Slow.Std(), Sample: telemetry.SampleOr(c.Traces.Sample),
	})
	m.Add(d.traces.Sources()...)
	return nil
}

// replayed tells the traces which writes the journal has brought to the store.
func (d *daemon) replayed(tier string, firsts []job.Fact, took time.Duration) {
	writes := make([]telemetry.WriteRef, len(firsts))
	for i, f := range firsts {
		writes[i] = telemetry.WriteRef{JID: string(f.Job()), Version: uint64(f.Stamp())}
	}
	d.traces.Replay(tier, took, writes)
}
