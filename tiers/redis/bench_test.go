package redis_test

import (
	"fmt"
	"testing"

	"saltern/job"
	"saltern/testbed"
	"saltern/tiers"
	"saltern/tiers/redis"
)

// The head of a job that Redis has, beside one GET of as many bytes by go-redis itself: the difference is what
// the script, the check of the generation and the decoding cost.
func BenchmarkHead(b *testing.B) {
	node := start(b, testbed.RedisOptions{})
	tier := open(b, redis.Options{Addrs: []string{node.Address()}})
	client := raw(b, node)
	load := publish(jid, 1)
	load.Payload = make([]byte, 300)
	fill(b, tier, tiers.Snapshot{
		Head: job.Head{JID: jid, Load: &load, Minions: minionIDs(20)}, HasReturns: true,
	})
	if err := client.Set(b.Context(), "bare", make([]byte, 1000), 0).Err(); err != nil {
		b.Fatal(err)
	}
	b.Run("tier", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := tier.Head(b.Context(), jid); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("bare GET", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := client.Get(b.Context(), "bare").Err(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkReturns(b *testing.B) {
	node := start(b, testbed.RedisOptions{})
	tier := open(b, redis.Options{Addrs: []string{node.Address()}})
	var returns []job.Return
	for i, m := range minionIDs(20) {
		returns = append(returns, ret(jid, m, i+1))
	}
	fill(b, tier, tiers.Snapshot{Head: job.Head{JID: jid}, Returns: returns, HasReturns: true})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := tier.Returns(b.Context(), jid, tiers.ReturnQuery{MaxBytes: 1 << 20}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkMerge is one return into a job that is held.
func BenchmarkMerge(b *testing.B) {
	node := start(b, testbed.RedisOptions{})
	tier := open(b, redis.Options{Addrs: []string{node.Address()}})
	create(b, tier, jid)
	n := 0
	b.ReportAllocs()
	for b.Loop() {
		n++
		merge(b, tier, ret(jid, job.Minion(fmt.Sprintf("m%d", n%1000)), n))
	}
}

func minionIDs(n int) []job.Minion {
	ids := make([]job.Minion, n)
	for i := range ids {
		ids[i] = job.Minion(fmt.Sprintf("web%03d.example.com", i))
	}
	return ids
}
