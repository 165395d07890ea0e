package telemetry_test

import (
	"context"
	"testing"
	"time"

	"saltern/telemetry"
)

// BenchmarkMemoryHit is what a read that the cache in the process answers pays for its record.
func BenchmarkMemoryHit(b *testing.B) {
	m := telemetry.NewMetrics()
	var c telemetry.Call
	ctx := telemetry.WithCall(context.Background(), &c)
	b.ReportAllocs()
	for b.Loop() {
		c.Begin("get_load")
		memoryHit(ctx, m)
	}
}

// BenchmarkMemoryHitWithoutCall is the same without what the call itself pays: one look at the clock.
func BenchmarkMemoryHitWithoutCall(b *testing.B) {
	m := telemetry.NewMetrics()
	b.ReportAllocs()
	for b.Loop() {
		memoryHit(context.Background(), m)
	}
}

func memoryHit(ctx context.Context, m *telemetry.Metrics) {
	start := telemetry.SampleStart()
	var took time.Duration
	if start != 0 {
		took = telemetry.Now() - start
		m.Tier("memory", telemetry.Head, took)
	}
	telemetry.CallOf(ctx).AddHit(telemetry.Head, "20270105120000000000", telemetry.Hit, start, took)
}

// BenchmarkFinish is what ends a call, its metrics among it.
func BenchmarkFinish(b *testing.B) {
	r := telemetry.NewRecorder(telemetry.RecorderOptions{Metrics: telemetry.NewMetrics()})
	var c telemetry.Call
	b.ReportAllocs()
	for b.Loop() {
		c.Begin("get_load")
		r.Finish(&c)
	}
}
