package backplane_test

import (
	"log/slog"
	"slices"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"saltern/job"
	"saltern/proxy/backplane"
)

// BenchmarkPublishToEvict is from Publish in one proxy to Evict in another.
func BenchmarkPublishToEvict(b *testing.B) {
	client := goredis.NewClient(&goredis.Options{Addr: shared.Address(), Protocol: 2})
	defer client.Close()
	evicted := make(chan job.JID, 1)
	key := newKey()
	run := func(evict func(job.JID)) *backplane.Backplane {
		p, err := backplane.New(backplane.Options{
			Client: client, Key: key, Evict: evict, Gap: func() {}, Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			b.Fatal(err)
		}
		go p.Run(b.Context())
		for !p.Healthy() {
			time.Sleep(time.Millisecond)
		}
		return p
	}
	sender := run(func(job.JID) {})
	run(func(jid job.JID) { evicted <- jid })
	var took []time.Duration
	for b.Loop() {
		start := time.Now()
		sender.Publish(job.NoCache{JID: "20261201120000000000", Version: 1})
		<-evicted
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "µs-median")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "µs-p99")
}
