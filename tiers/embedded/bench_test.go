package embedded_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"saltern/job"
	"saltern/tiers"
	"saltern/tiers/embedded"
)

// BenchmarkMergeParallel writes returns from many callers: they share fsyncs.
func BenchmarkMergeParallel(b *testing.B) {
	for _, callers := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			s := open(b, embedded.Options{Dir: b.TempDir()})
			jid := job.NewJID(time.Now())
			merge(b, s, publish(jid, job.KeepForever, minions(10_000)...)...)
			before := s.Stats()
			var n atomic.Int64
			b.SetParallelism(max(1, callers/2)) // of 2 processors
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					r := returned(jid, job.Minion(fmt.Sprintf("m%d", n.Add(1))))
					r.Ret = make([]byte, 300)
					merge(b, s, r)
				}
			})
			after := s.Stats()
			b.ReportMetric(float64(after.Commits-before.Commits)/float64(after.Fsyncs-before.Fsyncs), "merges/fsync")
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "merges/s")
		})
	}
}

func BenchmarkListNewest100(b *testing.B) {
	s := filled(b, 100_000)
	for _, f := range []tiers.Filter{{}, {Minion: "minion-00007.example.com"}, {Fun: "fun.3"}, {Loads: true}} {
		b.Run(fmt.Sprintf("minion=%v fun=%v loads=%v", f.Minion != "", f.Fun != "", f.Loads), func(b *testing.B) {
			for b.Loop() {
				page, err := s.List(b.Context(), f)
				if err != nil || len(page.Jobs) != 100 {
					b.Fatalf("List = %d jobs, %v", len(page.Jobs), err)
				}
			}
		})
	}
}

func BenchmarkHead(b *testing.B) {
	const n = 50_000
	s := filled(b, n)
	for i := 0; b.Loop(); i++ {
		if _, err := s.Head(b.Context(), jidAt(start, i*7919%n)); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPublish60000Minions(b *testing.B) {
	s := open(b, embedded.Options{Dir: b.TempDir()})
	ids := minions(60_000)
	for i := 0; b.Loop(); i++ {
		merge(b, s, publish(jidAt(start, i), job.KeepForever, ids...)...)
	}
}

// filled is a store with n small jobs.
func filled(b *testing.B, n int) *embedded.Store {
	s := open(b, embedded.Options{Dir: b.TempDir()})
	for i := 0; i < n; i += 1000 {
		var facts []job.Fact
		for k := i; k < min(n, i+1000); k++ {
			facts = append(facts, smallJob(k)...)
		}
		merge(b, s, facts...)
	}
	return s
}

// smallJob is a job as most are: one minion of a thousand, with one return, and a load of 400 bytes.
func smallJob(i int) []job.Fact {
	jid := jidAt(start, i)
	id := job.Minion(fmt.Sprintf("minion-%05d.example.com", i%1000))
	facts := publish(jid, job.KeepForever, id)
	l := facts[0].(job.Load)
	l.Fun, l.Target = fmt.Sprintf("fun.%d", i%20), string(id)
	l.Payload = make([]byte, 400)
	for k := range l.Payload {
		l.Payload[k] = byte((i*31 + k*k) >> 3)
	}
	facts[0] = l
	return append(facts, returned(jid, id))
}
