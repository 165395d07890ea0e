package memory_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"saltern/job"
	"saltern/tiers"
	"saltern/tiers/memory"
)

// held gives a cache with that many jobs of some minions, as many as fit.
func held(b *testing.B, jobs int) (*memory.Cache, []job.JID) {
	b.Helper()
	c := open(b, memory.Options{})
	jids := make([]job.JID, jobs)
	for i := range jids {
		jids[i] = jidAt(i)
		fill(b, c, publish(jids[i]), time.Hour)
	}
	return c, jids
}

func BenchmarkHead(b *testing.B) {
	ctx := context.Background()
	for _, jobs := range []int{1, 10_000} { // in the window; most in ristretto
		b.Run(fmt.Sprint(jobs, " jobs"), func(b *testing.B) {
			c, jids := held(b, jobs)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if _, err := c.Head(ctx, jids[i%jobs]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("parallel", func(b *testing.B) {
		c, jids := held(b, 100)
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for i := 0; pb.Next(); i++ {
				if _, err := c.Head(ctx, jids[i%100]); err != nil {
					b.Error(err)
				}
			}
		})
	})
}

func BenchmarkMiss(b *testing.B) {
	c := open(b, memory.Options{})
	b.ReportAllocs()
	for b.Loop() {
		_, _ = c.Head(context.Background(), "none")
	}
}

func BenchmarkReturns(b *testing.B) {
	for _, minions := range []int{10, 1000} {
		b.Run(fmt.Sprint(minions, " minions"), func(b *testing.B) {
			c := open(b, memory.Options{})
			fill(b, c, publish(jidAt(0)), 0)
			for i := range minions {
				merge(b, c, ret(jidAt(0), i))
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.Returns(context.Background(), jidAt(0), tiers.ReturnQuery{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkJob is a whole job: its publish and the returns of its minions one by one.
func BenchmarkJob(b *testing.B) {
	for _, minions := range []int{100, 1_000, 10_000, 60_000} {
		b.Run(fmt.Sprint(minions, " minions"), func(b *testing.B) {
			c := open(b, memory.Options{MaxBytes: 1 << 30})
			for i := 0; b.Loop(); i++ {
				fill(b, c, publish(jidAt(i)), 0)
				for m := range minions {
					merge(b, c, ret(jidAt(i), m*7919%minions))
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(minions), "ns/return")
		})
	}
}
