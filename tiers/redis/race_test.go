package redis_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"saltern/job"
	"saltern/testbed"
	"saltern/tiers"
	"saltern/tiers/redis"
)

// pair gives two tiers of one namespace, as two masters have them.
func pair(t testing.TB, o redis.Options) (a, b *redis.Tier) {
	t.Helper()
	o = defaults(o)
	return open(t, o), open(t, o)
}

// TestFillAfterWrite: a fact that comes while a job is read for a fill takes the lease away, whoever writes it.
func TestFillAfterWrite(t *testing.T) {
	for name, write := range map[string]func(t *testing.T, other *redis.Tier){
		"load":   func(t *testing.T, other *redis.Tier) { merge(t, other, publish(jid, 1)) },
		"return": func(t *testing.T, other *redis.Tier) { merge(t, other, ret(jid, "a", 1)) },
		"evict": func(t *testing.T, other *redis.Tier) {
			if err := other.Evict(t.Context(), jid); err != nil {
				t.Fatal(err)
			}
		},
		"flush": func(t *testing.T, other *redis.Tier) {
			if err := other.ForgetAll(t.Context()); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			reader, writer := pair(t, redis.Options{})
			lease := leaseOf(t, reader, jid)
			if lease == "" {
				t.Fatal("a first miss gave no lease")
			}
			write(t, writer)
			old := tiers.Snapshot{Head: job.Head{JID: jid}, HasReturns: true, Lease: lease}
			fill(t, reader, old)
			if isHeld(t, reader, jid) || isHeld(t, writer, jid) {
				t.Error("a fill that was read before a write is held")
			}
			if n := reader.Stats().Declined; n != 1 {
				t.Errorf("%d fills declined; want 1", n)
			}
			// The next reader fills: without a guard at once.
			old.Lease = ""
			fill(t, reader, old)
			if !isHeld(t, writer, jid) {
				t.Error("a later fill is not held")
			}
		})
	}
}

// TestReturnsFillAfterReturn: a head that is held does not let old returns in.
func TestReturnsFillAfterReturn(t *testing.T) {
	reader, writer := pair(t, redis.Options{})
	fill(t, reader, tiers.Snapshot{Head: job.Head{JID: jid}})
	_, err := reader.Returns(t.Context(), jid, tiers.ReturnQuery{})
	miss, ok := errors.AsType[*tiers.Miss](err)
	if !ok {
		t.Fatalf("Returns = %v; want a lease", err)
	}
	merge(t, writer, ret(jid, "a", 1))
	load := publish(jid, 2)
	fill(t, reader, tiers.Snapshot{Head: job.Head{JID: jid, Load: &load}, HasReturns: true, Lease: miss.Lease})
	if page, err := reader.Returns(t.Context(), jid, tiers.ReturnQuery{}); !errors.Is(err, tiers.ErrNotFound) {
		t.Errorf("Returns = %d returns, %v; want ErrNotFound", len(page.Returns), err)
	}
	if h, err := reader.Head(t.Context(), jid); err != nil || h.Load == nil {
		t.Errorf("Head = %+v, %v; the head of that fill may be held", h, err)
	}
}

// TestOneLease: of several readers one fills.
func TestOneLease(t *testing.T) {
	a, b := pair(t, redis.Options{})
	first := leaseOf(t, a, jid)
	if second := leaseOf(t, b, jid); first == "" || second != "" {
		t.Errorf("leases %q and %q; want one", first, second)
	}
	fill(t, b, tiers.Snapshot{Head: job.Head{JID: jid}, HasReturns: true, Lease: "made up"})
	if isHeld(t, a, jid) {
		t.Error("a fill with another lease is held")
	}
	fill(t, a, tiers.Snapshot{Head: job.Head{JID: jid}, HasReturns: true, Lease: first})
	if !isHeld(t, b, jid) {
		t.Error("the fill with the lease is not held")
	}
}

// TestGuard: the writer of a fact may still be waiting for the durable store, whose readers do not see it yet.
func TestGuard(t *testing.T) {
	o := defaults(redis.Options{})
	reader := open(t, o)
	o.Guard = time.Hour
	merge(t, open(t, o), ret(jid, "a", 1))
	if lease := leaseOf(t, reader, jid); lease != "" {
		t.Errorf("a lease, %q, right after a fact of a job that is not held", lease)
	}
	fill(t, reader, tiers.Snapshot{Head: job.Head{JID: jid}, HasReturns: true})
	if isHeld(t, reader, jid) {
		t.Error("a job was filled while a fact of it may be on its way to the store")
	}
	// It ends by itself.
	other := jid + "_1"
	o.Guard = time.Millisecond
	merge(t, open(t, o), ret(other, "a", 1))
	deadline := time.Now().Add(10 * time.Second)
	for leaseOf(t, reader, other) == "" {
		if time.Now().After(deadline) {
			t.Fatal("no lease 10 s after a guard of 1 ms")
		}
	}
}

// TestGuardOfGeneration: who has a fact on its way is forgotten with the generation, and with a flush.
func TestGuardOfGeneration(t *testing.T) {
	t.Parallel()
	node := start(t, testbed.RedisOptions{})
	o := defaults(redis.Options{Addrs: []string{node.Address()}})
	eager := open(t, o)
	o.Guard = time.Hour
	careful := open(t, o)
	for _, c := range []struct {
		name   string
		forget func() error
	}{
		{"first", func() error { return nil }},
		{"forget", func() error { return eager.ForgetAll(t.Context()) }},
		{"flush", func() error { return raw(t, node).FlushAll(t.Context()).Err() }},
	} {
		name := c.name
		if err := c.forget(); err != nil {
			t.Fatal(err)
		}
		if lease := leaseOf(t, careful, jid); lease != "" {
			t.Errorf("%s: a lease, %q, in a generation that is young", name, lease)
		}
		fill(t, careful, tiers.Snapshot{Head: job.Head{JID: jid}, HasReturns: true})
		if isHeld(t, careful, jid) {
			t.Errorf("%s: a job was filled in a generation that is young", name)
		}
		create(t, eager, jid)
		if !isHeld(t, careful, jid) {
			t.Errorf("%s: a job that is held cannot be read in a generation that is young", name)
		}
	}
	// An old one: 2001.
	old := "chfeuio0"
	if err := raw(t, node).Set(t.Context(), "saltern:"+o.Namespace+":{generation}", old+"abcd", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if leaseOf(t, careful, jid) == "" {
		t.Error("no lease in a generation that is old")
	}
}

// TestAbsentAndWritten: what is known to be absent is forgotten with any fact, also that of another client.
func TestAbsentAndWritten(t *testing.T) {
	reader, writer := pair(t, redis.Options{})
	absent := tiers.Snapshot{Head: job.Head{JID: jid}, Absent: true, TTL: time.Hour, Lease: leaseOf(t, reader, jid)}
	fill(t, reader, absent)
	if _, err := writer.Head(t.Context(), jid); !errors.Is(err, tiers.ErrAbsent) {
		t.Fatalf("Head = %v; want ErrAbsent", err)
	}
	merge(t, writer, publish(jid, 1))
	if _, err := reader.Head(t.Context(), jid); !errors.Is(err, tiers.ErrNotFound) {
		t.Errorf("Head = %v; want ErrNotFound", err)
	}
	// Read before the fact was written.
	other := jid + "_1"
	absent = tiers.Snapshot{Head: job.Head{JID: other}, Absent: true, TTL: time.Hour, Lease: leaseOf(t, reader, other)}
	merge(t, writer, publish(other, 1))
	fill(t, reader, absent)
	if _, err := reader.Head(t.Context(), other); errors.Is(err, tiers.ErrAbsent) {
		t.Error("a job that was just written is said to be absent")
	}
}

// store is a durable store for the test below.
type store struct {
	mu   sync.Mutex
	jobs map[job.JID]map[job.Minion]job.Return
}

func (s *store) write(r job.Return) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.jobs[r.JID] == nil {
		s.jobs[r.JID] = make(map[job.Minion]job.Return)
	}
	s.jobs[r.JID][r.Minion] = r
}

func (s *store) read(jid job.JID) []job.Return {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []job.Return
	for _, r := range s.jobs[jid] {
		all = append(all, r)
	}
	return all
}

// TestNoWriteIsHidden: two masters write and read a few jobs through one Redis and one store, while jobs are
// evicted, keys of theirs vanish, and the generation changes. What was written before a read began is in what it
// gives, wherever that comes from. Facts are in the store first; for those that are not, see TestGuard.
func TestNoWriteIsHidden(t *testing.T) {
	const jobs, writes, readers = 8, 400, 4
	a, b := pair(t, redis.Options{})
	masters := []*redis.Tier{a, b}
	durable := &store{jobs: make(map[job.JID]map[job.Minion]job.Return)}
	name := func(i int) job.JID { return job.JID(fmt.Sprintf("%s_%d", jid, i)) }
	client := raw(t, shared)

	var acked [jobs]sync.Map // minions whose returns were acknowledged
	var writing, reading sync.WaitGroup
	stop := make(chan struct{})
	for w := range 2 {
		writing.Go(func() {
			for i := range writes {
				n := rand.IntN(jobs)
				r := ret(name(n), job.Minion(fmt.Sprintf("m%d-%d", w, i)), i+1)
				durable.write(r)
				if _, err := masters[w].Merge(t.Context(), []job.Fact{r}); err != nil {
					t.Errorf("Merge = %v", err)
				}
				acked[n].Store(r.Minion, true)
			}
		})
	}
	held := make([]int, readers)
	for i := range readers {
		tier := masters[i%2]
		reading.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				n := rand.IntN(jobs)
				var before []job.Minion
				acked[n].Range(func(m, _ any) bool { before = append(before, m.(job.Minion)); return true })
				got, fromRedis := readThrough(t, tier, durable, name(n))
				if fromRedis {
					held[i]++
				}
				for _, m := range before {
					if !got[m] {
						t.Errorf("the return of %s to %s was acknowledged and is hidden (held in Redis: %v)", m, name(n), fromRedis)
						return
					}
				}
			}
		})
	}
	reading.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(2 * time.Millisecond):
			}
			switch i % 20 {
			case 19:
				_ = masters[i/20%2].ForgetAll(t.Context())
			case 9, 14:
				_ = masters[i%2].Evict(t.Context(), name(rand.IntN(jobs)))
			default:
				// Redis evicts one key, and not the other.
				keys, _ := client.Keys(t.Context(), "*{"+string(name(rand.IntN(jobs)))+"}[hr]").Result()
				for _, k := range keys[:min(len(keys), 1)] {
					client.Del(t.Context(), k)
				}
			}
		}
	})
	writing.Wait()
	close(stop)
	reading.Wait()
	total := 0
	for _, n := range held {
		total += n
	}
	if total == 0 {
		t.Error("no read was answered by Redis: the test tests nothing")
	}
}

// readThrough reads a job as the proxy does: from Redis, or from the store with a fill.
func readThrough(t *testing.T, tier *redis.Tier, durable *store, jid job.JID) (got map[job.Minion]bool, held bool) {
	page, err := tier.Returns(t.Context(), jid, tiers.ReturnQuery{})
	if err != nil && !errors.Is(err, tiers.ErrNotFound) {
		t.Errorf("Returns = %v", err)
	}
	returns := page.Returns
	if err != nil {
		returns = durable.read(jid)
		if miss, ok := errors.AsType[*tiers.Miss](err); ok {
			s := tiers.Snapshot{Head: job.Head{JID: jid}, Returns: returns, HasReturns: true, Lease: miss.Lease}
			if err := tier.Fill(t.Context(), s); err != nil {
				t.Errorf("Fill = %v", err)
			}
		}
	}
	got = make(map[job.Minion]bool)
	for _, r := range returns {
		got[r.Minion] = true
	}
	return got, err == nil
}
