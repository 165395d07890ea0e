package cluster

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Redis hangs for a minute under 2,000 calls a second (S74), most of them for jobs that b has in memory, some for jobs that
// it has not, and some returns. Then it goes on.
func TestRedisHangsUnderLoad(t *testing.T) {
	const hangs, settles, rate, cold = time.Minute, 10 * time.Second, 2000, 50
	long(t)
	r, l := theRig(t), newLedger()
	jobs := finished(t, r, l, cold*int((2*settles+hangs)/time.Second)+1000)
	warm, rest := jobs[:200], jobs[200:]
	for _, jid := range warm {
		if err := l.checkJob(r.b, jid); err != nil {
			t.Fatal(err)
		}
	}
	running, err := l.publish(r.b, "m000")
	if err != nil {
		t.Fatal(err)
	}
	var next, returns atomic.Int64
	work := load{rate: rate, callers: 512, call: func(i int) (string, error) {
		switch i % (rate / cold) {
		case 0:
			_, err := r.b.load(rest[int(next.Add(1))%len(rest)])
			return "not in memory", err
		case 1:
			return "return", l.answer(r.b, running, fmt.Sprintf("x%d", returns.Add(1)))
		}
		_, err := r.b.load(warm[i%len(warm)])
		return "in memory", err
	}}
	work.runFor(settles) // warms up
	before := sampled(t, r.b, func() *taken { return work.runFor(settles) })
	if err := r.redis.Hang(); err != nil {
		t.Fatal(err)
	}
	hung := time.Now()
	during := sampled(t, r.b, func() *taken { return work.runFor(hangs) })
	if err := r.redis.Continue(); err != nil {
		t.Fatal(err)
	}
	after := sampled(t, r.b, func() *taken { return work.runFor(settles) })
	for _, phase := range []struct {
		name string
		got  *taken
	}{{"Redis is up", before}, {"Redis hangs", during}, {"Redis goes on", after}} {
		phase.got.fine(t)
		phase.got.log(t, phase.name)
	}
	t.Logf("the breaker for reads of Redis opened %v after it hung", opened(t, r.b, "redis", "read", hung))
}

// Cassandra hangs under load: what memory has is read as before, and writes wait no longer than write.ack-wait.
func TestCassandraHangsUnderLoad(t *testing.T) {
	const hangs, rate = 20 * time.Second, 500
	long(t)
	r, l := theRig(t), newLedger()
	warm := finished(t, r, l, 200)
	for _, jid := range warm {
		if err := l.checkJob(r.b, jid); err != nil {
			t.Fatal(err)
		}
	}
	running, err := l.publish(r.b, "m000")
	if err != nil {
		t.Fatal(err)
	}
	var returns atomic.Int64
	work := load{rate: rate, callers: 512, call: func(i int) (string, error) {
		if i%20 == 0 {
			return "return", l.answer(r.b, running, fmt.Sprintf("x%d", returns.Add(1)))
		}
		_, err := r.b.load(warm[i%len(warm)])
		return "in memory", err
	}}
	work.runFor(hangs / 3) // warms up
	before := sampled(t, r.b, func() *taken { return work.runFor(hangs) })
	if err := r.cassandra.Hang(); err != nil {
		t.Fatal(err)
	}
	during := sampled(t, r.b, func() *taken { return work.runFor(hangs) })
	if err := r.cassandra.Continue(); err != nil {
		t.Fatal(err)
	}
	before.fine(t)
	during.fine(t)
	before.log(t, "Cassandra is up")
	during.log(t, "Cassandra hangs")
	t.Logf("in memory: p99 is %.2f times that with Cassandra up",
		float64(during.at("in memory", 0.99))/float64(before.at("in memory", 0.99)))
}

// finished makes jobs of one minion that has returned, through a.
func finished(t *testing.T, r *rig, l *ledger, n int) []string {
	t.Helper()
	jobs := make([]string, n)
	var next atomic.Int64
	var wait sync.WaitGroup
	for range 16 {
		wait.Go(func() {
			for i := next.Add(1) - 1; i < int64(n) && !t.Failed(); i = next.Add(1) - 1 {
				jid, err := l.publish(r.a, "m000")
				if err == nil {
					err = l.answer(r.a, jid, "m000")
				}
				if err != nil {
					t.Error(err)
				}
				jobs[i] = jid
			}
		})
	}
	wait.Wait()
	if t.Failed() {
		t.FailNow()
	}
	r.settle(t)
	return jobs
}

// sampled runs a load and logs how much memory, how many threads and how many files the daemon had at most meanwhile.
func sampled(t *testing.T, m *master, run func() *taken) *taken {
	t.Helper()
	stop := make(chan struct{})
	var wait sync.WaitGroup
	var memory, files int
	wait.Go(func() {
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			if rss, err := residentMiB(m.daemon.PID()); err == nil {
				memory = max(memory, rss)
			}
			if open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", m.daemon.PID())); err == nil {
				files = max(files, len(open))
			}
			select {
			case <-stop:
				return
			case <-tick.C:
			}
		}
	})
	got := run()
	close(stop)
	wait.Wait()
	t.Logf("the daemon had %d MiB resident and %d files open at most", memory, files)
	return got
}

// opened says how long after a moment a breaker of a daemon opened, by its log.
func opened(t *testing.T, m *master, tier, calls string, after time.Time) time.Duration {
	t.Helper()
	f, err := os.Open(m.daemon.Log())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line := lines.Text()
		if !strings.Contains(line, "tier="+tier+" calls="+calls+" from=closed to=open") {
			continue
		}
		text, _, _ := strings.Cut(strings.TrimPrefix(line, "time="), " ")
		if at, err := time.Parse(time.RFC3339Nano, text); err == nil && at.After(after.Add(-time.Millisecond)) {
			return at.Sub(after)
		}
	}
	t.Fatalf("the log of %s does not say that the breaker of %s opened", m.name, tier)
	return 0
}
