package proxy_test

import (
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"

	"saltern/job"
	"saltern/proxy"
	"saltern/tiers"
)

// benchJob is a job of 100 minions of which each has returned some 300 bytes.
func benchJob(b *bed) {
	facts := []job.Fact{load("*")}
	for i := range 100 {
		r := ret(job.Minion(fmt.Sprintf("minion-%03d", i)), 1)
		r.Ret = make([]byte, 300)
		facts = append(facts, r)
	}
	b.write(facts...)
}

// BenchmarkHeadHit is a read of a load that the cache in memory holds.
func BenchmarkHeadHit(b *testing.B) {
	p := open(b, func(o *proxy.Options, _ *bed) { o.Cache = newMemory(b, 64<<20) })
	benchJob(p)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := p.Head(ctx, jid); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkReturnsHit is a read of 100 returns that the cache in memory holds.
func BenchmarkReturnsHit(b *testing.B) {
	p := open(b, func(o *proxy.Options, _ *bed) { o.Cache = newMemory(b, 64<<20) })
	benchJob(p)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.Returns(ctx, jid, tiers.ReturnQuery{MaxBytes: 1 << 20}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkHeadMiss is a read that goes to a store in a map: what the cascade itself costs.
func BenchmarkHeadMiss(b *testing.B) {
	p := open(b, forgetful)
	benchJob(p)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.Head(ctx, jid); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkWriteReturn is a minion's return with its load, fsynced, by 64 writers at a time.
func BenchmarkWriteReturn(b *testing.B) {
	r := openReal(b, b.TempDir(), 64<<20)
	r.write(load("*"))
	late := load("")
	late.Rank = job.RankReturn
	late.Payload = make([]byte, 500)
	var n atomic.Int64
	b.ReportAllocs()
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			i := n.Add(1)
			one, f := late, ret(job.Minion("minion-"+strconv.FormatInt(i%1000, 10)), 1)
			one.JID = job.JID(fmt.Sprintf("202701051200%08d", i/1000))
			f.JID, f.Ret = one.JID, make([]byte, 300)
			if _, err := r.Write(ctx, one, f); err != nil {
				b.Fatal(err)
			}
		}
	})
}
