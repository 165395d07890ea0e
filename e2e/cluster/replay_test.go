package cluster

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// long skips a test that takes minutes.
func long(t *testing.T) {
	t.Helper()
	if os.Getenv("SALTERN_LONG") == "" {
		t.Skip("takes minutes: SALTERN_LONG=1")
	}
}

// The replay of what waited in an outage of Cassandra leaves the masters their speed. The same load is timed three times:
// on a Cassandra that was started ten seconds ago with nothing to replay, on one that was started ten seconds ago while
// 200,000 facts are replayed, and after that. Everything is in Cassandra afterwards.
func TestReplayBesideLiveLoad(t *testing.T) {
	const facts, perJob = 200_000, 100
	long(t)
	r, l := theRig(t), newLedger()
	// Of the first start nothing is timed: it makes the files that the second one finds.
	restartCassandra(t, r, func() {})
	work := load{rate: 300, callers: 256, call: (&masterWork{r: r, l: newLedger()}).call}
	const starts = 10 * time.Second // Cassandra is slow when it was just started
	first := work.runFor(starts)
	first.fine(t)
	quiet := work.runFor(20 * time.Second)
	quiet.fine(t)

	restartCassandra(t, r, func() { fill(t, r, l, facts, perJob) })
	waited, err := r.a.waiting()
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	start := time.Now()
	var drained time.Duration
	var watch sync.WaitGroup
	watch.Go(func() {
		defer close(stop)
		drained = untilDrained(t, r.a, start)
	})
	firstDuring := work.runFor(starts)
	firstDuring.fine(t)
	during := work.run(stop)
	watch.Wait()
	during.fine(t)
	after := work.runFor(20 * time.Second)
	after.fine(t)

	first.log(t, "just started, nothing to replay")
	firstDuring.log(t, "just started, beside the replay")
	quiet.log(t, "nothing to replay")
	during.log(t, "beside the replay")
	after.log(t, "after the replay")
	t.Logf("%d facts were replayed in %v, %.0f a second; p99 %.2f times that of nothing to replay, %.2f times that of after",
		waited, drained.Round(time.Second), float64(waited)/drained.Seconds(),
		ratio(during, quiet), ratio(during, after))
	// Through b, which never saw one of them.
	var wait sync.WaitGroup
	jids := make(chan string)
	for range 8 {
		wait.Go(func() {
			for jid := range jids {
				if err := l.checkJob(r.b, jid); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for jid := range l.jobs {
		jids <- jid
	}
	close(jids)
	wait.Wait()
}

func ratio(a, b *taken) float64 { return float64(a.at("all", 0.99)) / float64(b.at("all", 0.99)) }

// restartCassandra kills Cassandra and starts it again, with something done in between.
func restartCassandra(t *testing.T, r *rig, between func()) {
	t.Helper()
	if err := r.cassandra.Kill(); err != nil {
		t.Fatal(err)
	}
	between()
	if err := r.cassandra.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if t.Failed() {
		t.FailNow()
	}
	eventually(t, patience, func() error { // of b, whose lists wait for no replay
		_, err := r.b.list()
		return err
	})
}

// fill writes jobs of perJob returns through a until it has taken so many facts.
func fill(t *testing.T, r *rig, l *ledger, facts, perJob int) {
	t.Helper()
	start := time.Now()
	var next atomic.Int64
	var wait sync.WaitGroup
	for range 64 {
		wait.Go(func() {
			for next.Add(1) <= int64(facts/perJob) && !t.Failed() {
				jid, err := l.publish(r.a, minionNames(perJob)...)
				for i := 0; i < perJob && err == nil; i++ {
					err = l.answer(r.a, jid, fmt.Sprintf("m%03d", i))
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
	took := time.Since(start)
	t.Logf("without Cassandra %d returns were acknowledged in %v, %.0f a second", facts, took.Round(time.Second),
		float64(facts)/took.Seconds())
}

// untilDrained looks at a journal once a second until nothing waits in it, and logs what it says. Returns that are just on
// their way wait too: some are not counted.
func untilDrained(t *testing.T, m *master, start time.Time) time.Duration {
	const onTheirWay = 100
	for time.Since(start) < 10*time.Minute {
		answer, err := m.call(patience, "journal_status")
		status, _ := answer.(map[string]any)
		n, ok := number(status["facts"])
		if err != nil || !ok {
			t.Errorf("journal_status: %v, %v", answer, err)
			return 0
		}
		rss, err := residentMiB(m.daemon.PID())
		if err != nil {
			t.Error(err)
		}
		t.Logf("%4.0f s: %d facts wait, replay of %v a second, %d MiB resident",
			time.Since(start).Seconds(), n, status["rate"], rss)
		if n < onTheirWay {
			return time.Since(start)
		}
		time.Sleep(time.Second)
	}
	t.Error("the journal is not empty after 10 minutes")
	return 0
}

// residentMiB is the memory of a process.
func residentMiB(pid int) (int, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, err
	}
	var size, resident int
	if _, err := fmt.Sscan(string(status), &size, &resident); err != nil {
		return 0, err
	}
	return resident * os.Getpagesize() >> 20, nil
}
