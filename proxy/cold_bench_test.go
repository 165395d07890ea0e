package proxy_test

import (
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/apache/cassandra-gocql-driver/v2"
	goredis "github.com/redis/go-redis/v9"

	"saltern/job"
	"saltern/proxy"
	"saltern/testbed"
	"saltern/tiers"
	"saltern/tiers/cassandra"
	"saltern/tiers/redis"
)

// The cold benchmarks read what the cache in memory does not hold, through all that a daemon has before the tier, in turns
// with the bare driver, so that both have the same machine:
//
//	go test -run '^$' -bench Cold ./proxy
//
// They report medians: of the read through the cascade, of the bare one, and how they compare.

// BenchmarkColdRedis is a load that Redis answers, beside a GET of as many bytes.
func BenchmarkColdRedis(b *testing.B) {
	servers, node, err := testbed.StartRedis(b.Context(), testbed.RedisOptions{})
	if err != nil {
		b.Fatal(err)
	}
	end(b, servers.Close)
	tier, err := redis.New(redis.Options{Addrs: []string{node.Address()}, ReadTimeout: 10 * time.Second, Guard: -1})
	if err != nil {
		b.Fatal(err)
	}
	p := open(b, forgetful, func(o *proxy.Options, _ *bed) {
		o.Shared = []tiers.Tier{proxy.Guard(tier, proxy.GuardOptions{Timeout: 10 * time.Second})}
		o.SoftTimeout = 10 * time.Second
	})
	benchHead(p)
	for start := time.Now(); p.answers("redis", proxy.Hit) == 0; time.Sleep(10 * time.Millisecond) {
		// A read fills Redis in the background.
		if p.wantTarget("fills Redis", "*"); time.Since(start) > 10*time.Second {
			b.Fatal("Redis is not filled")
		}
	}
	before := p.answers("redis", proxy.Hit)
	client := goredis.NewClient(&goredis.Options{Addr: node.Address()})
	end(b, client.Close)
	if err := client.Set(ctx, "bare", make([]byte, 1000), 0).Err(); err != nil {
		b.Fatal(err)
	}
	inTurns(b, func() error { return p.readHead() }, func() error { return client.Get(ctx, "bare").Err() })
	if got := p.answers("redis", proxy.Hit) - before; got < uint64(b.N) {
		b.Errorf("Redis answered %d of %d reads", got, b.N)
	}
}

// BenchmarkColdCassandra is a load that Cassandra answers, beside the same query by a session with the same options.
func BenchmarkColdCassandra(b *testing.B) {
	servers, node, err := testbed.StartCassandra(b.Context(), testbed.CassandraOptions{})
	if err != nil {
		b.Fatal(err)
	}
	end(b, servers.Close)
	store, err := cassandra.Open(cassandra.Options{
		Hosts: []string{node.Address()}, Keyspace: "cold", ReplicationFactor: 1, CreateSchema: true,
		Timeout: 10 * time.Second, ConnectTimeout: 10 * time.Second, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		b.Fatal(err)
	}
	p := open(b, forgetful, func(o *proxy.Options, _ *bed) {
		o.Store = proxy.GuardStore(store, proxy.GuardOptions{Timeout: 10 * time.Second})
	})
	for start := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		if _, err := p.Write(ctx, load("*")); err == nil {
			break
		} else if time.Since(start) > time.Minute {
			b.Fatal(err)
		}
	}
	benchHead(p)
	config := gocql.NewCluster(node.Address())
	config.Keyspace, config.WriteCoalesceWaitTime, config.DisableSkipMetadata = "cold", 0, true
	config.Consistency, config.Logger = gocql.LocalQuorum, discard{}
	session, err := config.CreateSession()
	if err != nil {
		b.Fatal(err)
	}
	end(b, func() error { session.Close(); return nil })
	inTurns(b, func() error { return p.readHead() }, func() error {
		iter := session.Query(`SELECT kind, name, data FROM heads WHERE jid = ?`, string(jid)).Iter()
		var kind int8
		var name string
		var data []byte
		for iter.Scan(&kind, &name, &data) {
		}
		return iter.Close()
	})
}

// benchHead writes the head of a job of 20 minions.
func benchHead(b *bed) {
	l := load("*")
	l.Payload = make([]byte, 300)
	ids := make([]job.Minion, 20)
	for i := range ids {
		ids[i] = job.Minion("web" + string(rune('a'+i)) + ".example.com")
	}
	b.write(l, job.Minions{JID: jid, IDs: ids})
}

func (b *bed) readHead() error {
	_, err := b.Head(ctx, jid)
	return err
}

// inTurns measures two reads by one caller, one after the other.
func inTurns(b *testing.B, through, bare func() error) {
	b.Helper()
	took := [2][]time.Duration{}
	b.ResetTimer()
	for range b.N {
		for i, read := range []func() error{through, bare} {
			start := time.Now()
			if err := read(); err != nil {
				b.Fatal(err)
			}
			took[i] = append(took[i], time.Since(start))
		}
	}
	b.StopTimer()
	var median [2]float64
	for i := range took {
		slices.Sort(took[i])
		median[i] = float64(took[i][len(took[i])/2].Nanoseconds()) / 1000
	}
	b.ReportMetric(median[0], "µs-through")
	b.ReportMetric(median[1], "µs-bare")
	b.ReportMetric(median[0]-median[1], "µs-more")
	b.ReportMetric(median[0]/median[1], "times")
}

func end(b *testing.B, closing func() error) {
	b.Cleanup(func() {
		if err := closing(); err != nil {
			b.Error(err)
		}
	})
}

// discard is a logger of the driver.
type discard struct{}

func (discard) Error(string, ...gocql.LogField)   {}
func (discard) Warning(string, ...gocql.LogField) {}
func (discard) Info(string, ...gocql.LogField)    {}
func (discard) Debug(string, ...gocql.LogField)   {}
