package cassandra_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/cassandra-gocql-driver/v2"

	"saltern/job"
	"saltern/tiers"
	"saltern/tiers/cassandra"
)

// The benchmarks compare the store with a bare session in the same run, as figures of this machine alone mean little:
//
//	go test -run '^$' -bench . -benchtime 3s ./tiers/cassandra
//
// 64 callers; "rows/s" is what Cassandra was given to store, "returns/s" what minions sent.
const callers = 64

var payload = noise(700)

// cost reports the processor time that one operation of n takes, ours and Cassandra's, from the call of cost to that of what
// it gives. It depends less on what else this machine does than rates do.
func cost(b *testing.B, n int) (report func()) {
	b.Helper()
	pid := real(b).PID()
	ours, theirs := ownTime(b), timeOf(b, pid)
	return func() {
		each := float64(b.N * n)
		b.ReportMetric(float64((ownTime(b)-ours).Microseconds())/each, "µs-here/row")
		b.ReportMetric(float64((timeOf(b, pid)-theirs).Microseconds())/each, "µs-there/row")
	}
}

func ownTime(b *testing.B) time.Duration { return timeOf(b, os.Getpid()) }

// timeOf is the processor time of a process, in steps of 10 ms.
func timeOf(b *testing.B, pid int) time.Duration {
	b.Helper()
	if pid == 0 {
		return 0
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+2:]))
	user, errU := strconv.Atoi(fields[11])
	system, errS := strconv.Atoi(fields[12])
	if errU != nil || errS != nil {
		b.Fatal(errU, errS)
	}
	return time.Duration(user+system) * 10 * time.Millisecond
}

// BenchmarkBareInsert is a row of a return as single inserts through the driver.
func BenchmarkBareInsert(b *testing.B) {
	o := options(b)
	open(b, o)
	session := bare(b, o)
	jid := string(newJID())
	var n atomic.Int64
	b.SetParallelism(callers / 2)
	report := cost(b, 1)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			i := n.Add(1)
			err := session.Query(`INSERT INTO returns (jid, bucket, minion, version, digest, head, body)
				VALUES (?, ?, ?, ?, ?, ?, ?) USING TTL ? AND TIMESTAMP ?`,
				jid, int32(i%32), string(minion(int(i))), i, i, payload[:100], payload, 86400, i).Exec()
			if err != nil {
				b.Error(err)
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "rows/s")
	report()
}

// BenchmarkBareBatch is what could be reached: full batches of one partition and no other rows.
func BenchmarkBareBatch(b *testing.B) {
	o := options(b)
	open(b, o)
	session := bare(b, o)
	jid := string(newJID())
	var n atomic.Int64
	b.SetParallelism(4)
	report := cost(b, 50)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			batch := session.Batch(gocql.UnloggedBatch)
			bucket := int32(n.Load() % 32)
			for range 50 {
				i := n.Add(1)
				batch.Query(`INSERT INTO returns (jid, bucket, minion, version, digest, head, body)
					VALUES (?, ?, ?, ?, ?, ?, ?) USING TTL ? AND TIMESTAMP ?`,
					jid, bucket, string(minion(int(i))), i, i, payload[:100], payload, 86400, i)
			}
			if err := batch.Exec(); err != nil {
				b.Error(err)
			}
		}
	})
	b.ReportMetric(50*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
	report()
}

// BenchmarkMerge is returns as the proxy gives them to the store, one a call, of jobs that were published through it: each
// is two rows and a question.
func BenchmarkMerge(b *testing.B) {
	for _, c := range []struct {
		name string
		jobs int
	}{{"one job", 1}, {"16 jobs", 16}, {"1000 jobs", 1000}} {
		b.Run(c.name, func(b *testing.B) { benchmarkMerge(b, c.jobs) })
	}
}

func benchmarkMerge(b *testing.B, jobs int) {
	s := open(b, options(b))
	jids := make([]job.JID, jobs)
	ids := make([]job.Minion, max(20, 20_000/jobs))
	for i := range ids {
		ids[i] = minion(i)
	}
	for i := range jids {
		jids[i] = newJID()
		merge(b, s, publish(jids[i], 86400), minionsOf(jids[i], ids...))
	}
	var n atomic.Int64
	b.SetParallelism(callers / 2)
	report := cost(b, 2)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			i := int(n.Add(1))
			if _, err := s.Merge(context.Background(), []job.Fact{returnOf(jids[i%jobs], minion(i/jobs), payload)}); err != nil {
				b.Error(err)
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "returns/s")
	b.ReportMetric(2*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
	report()
}

// BenchmarkReplay is returns as the journal sends them again: 50 a call, 8 callers.
func BenchmarkReplay(b *testing.B) {
	s := open(b, options(b))
	jid := newJID()
	ids := make([]job.Minion, 20_000)
	for i := range ids {
		ids[i] = minion(i)
	}
	merge(b, s, publish(jid, 86400), minionsOf(jid, ids...))
	var n atomic.Int64
	b.SetParallelism(4)
	report := cost(b, 100)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			facts := make([]job.Fact, 50)
			for i := range facts {
				facts[i] = returnOf(jid, minion(int(n.Add(1))%20_000), payload)
			}
			if _, err := s.Merge(context.Background(), facts); err != nil {
				b.Error(err)
			}
		}
	})
	b.ReportMetric(50*float64(b.N)/b.Elapsed().Seconds(), "returns/s")
	b.ReportMetric(100*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
	report()
}

// BenchmarkHead is what get_load reads, one caller, beside the same query through the driver.
func BenchmarkHead(b *testing.B) {
	o := options(b)
	s := open(b, o)
	jid := newJID()
	load := publish(jid, 86400)
	load.Payload = payload
	merge(b, s, load, minionsOf(jid, "a", "b", "c"))
	b.Run("store", func(b *testing.B) {
		for b.Loop() {
			if _, err := s.Head(b.Context(), jid); err != nil {
				b.Fatal(err)
			}
		}
	})
	session := bare(b, o)
	b.Run("bare", func(b *testing.B) {
		for b.Loop() {
			var kind int8
			var name string
			var data []byte
			iter := session.Query(`SELECT kind, name, data FROM heads WHERE jid = ?`, string(jid)).Iter()
			for iter.Scan(&kind, &name, &data) {
			}
			if err := iter.Close(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkList is a page of 100 jobs of 20 minions each: counted anew, as they just changed.
func BenchmarkList(b *testing.B) {
	s := open(b, options(b))
	fillJobs(b, s, 100, 20)
	for b.Loop() {
		page, err := s.List(b.Context(), tiers.Filter{Limit: 100})
		if err != nil || len(page.Jobs) != 100 {
			b.Fatal(len(page.Jobs), err)
		}
	}
}

func fillJobs(t testing.TB, s *cassandra.Store, jobs, minions int) {
	for range jobs {
		jid := newJID()
		facts := []job.Fact{publish(jid, 86400)}
		for i := range minions {
			facts = append(facts, returnOf(jid, minion(i), payload))
		}
		merge(t, s, facts...)
	}
}
