package redis_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"saltern/job"
	"saltern/tiers"
	"saltern/tiers/redis"
)

// TestHeadLeavesReturnsAlone: Salt's get_load reads no returns, however large the job.
func TestHeadLeavesReturnsAlone(t *testing.T) {
	node := shared
	tier := open(t, redis.Options{})
	create(t, tier, jid)
	r := ret(jid, "a", 1)
	r.Ret = make([]byte, 1<<20)
	rand.NewChaCha8([32]byte{}).Read(r.Ret)
	merge(t, tier, publish(jid, 1), r)
	sent := func() int {
		info, err := node.Command(t.Context(), "INFO", "stats")
		if err != nil {
			t.Fatal(err)
		}
		var n int
		for _, line := range splitLines(info) {
			_, _ = fmt.Sscanf(line, "total_net_output_bytes:%d", &n)
		}
		return n
	}
	before := sent()
	if _, err := tier.Head(t.Context(), jid); err != nil {
		t.Fatal(err)
	}
	if n := sent() - before; n > 100_000 {
		t.Errorf("a head took %d bytes from Redis; its returns have a megabyte", n)
	}
}

func splitLines(s string) []string {
	var lines []string
	for len(s) > 0 {
		i := slices.Index([]byte(s), '\n')
		if i < 0 {
			break
		}
		lines = append(lines, s[:i])
		s = s[i+1:]
	}
	return lines
}

// TestPagesOfGrowingJob: returns that come between two pages are in those to come, wherever they belong.
func TestPagesOfGrowingJob(t *testing.T) {
	reader, writer := pair(t, redis.Options{})
	const n = 200
	var returns []job.Return
	for i := range n {
		r := ret(jid, job.Minion(fmt.Sprintf("m%03d", 2*i)), i+1)
		r.Ret = make([]byte, 5000)
		returns = append(returns, r)
	}
	fill(t, reader, tiers.Snapshot{Head: job.Head{JID: jid}, Returns: returns, HasReturns: true})
	q := tiers.ReturnQuery{MaxBytes: 50_000}
	var got []job.Minion
	for i := 0; ; i++ {
		page, err := reader.Returns(t.Context(), jid, q)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range page.Returns {
			got = append(got, r.Minion)
		}
		if page.Next == "" {
			break
		}
		q.After = page.Next
		if i%3 == 0 {
			merge(t, writer, ret(jid, page.Next+"x", n+i)) // the very next one
		}
		if i == 5 {
			// Another fill with as many returns, of other minions.
			if err := writer.Evict(t.Context(), jid); err != nil {
				t.Fatal(err)
			}
			fill(t, writer, tiers.Snapshot{Head: job.Head{JID: jid}, Returns: returns, HasReturns: true})
			merge(t, writer, ret(jid, page.Next+"y", n+i))
		}
	}
	if !slices.IsSorted(got) {
		t.Error("minions are not in order")
	}
	for i := range n {
		if !slices.Contains(got, job.Minion(fmt.Sprintf("m%03d", 2*i))) {
			t.Errorf("no return of m%03d", 2*i)
		}
	}
	added := 0
	for _, m := range got {
		if m[len(m)-1] == 'x' || m[len(m)-1] == 'y' {
			added++
		}
	}
	if added < 4 {
		t.Errorf("%d returns that came between two pages were read; want them all", added)
	}
}

func ttlOf(t *testing.T, o redis.Options, kind string) time.Duration {
	t.Helper()
	client := raw(t, shared)
	keys, err := client.Keys(t.Context(), "saltern:"+o.Namespace+":*{"+string(jid)+"}"+kind).Result()
	if err != nil || len(keys) != 1 {
		t.Fatalf("keys of %s: %q, %v", kind, keys, err)
	}
	ttl, err := client.PTTL(t.Context(), keys[0]).Result()
	if err != nil {
		t.Fatal(err)
	}
	return ttl
}

// TestTTL: every key has one, no longer than asked for, and not the same for all.
func TestTTL(t *testing.T) {
	o := defaults(redis.Options{TTL: time.Hour})
	tier := open(t, o)
	for _, c := range []struct {
		name   string
		s      tiers.Snapshot
		longer time.Duration
	}{
		{"none asked", tiers.Snapshot{}, time.Hour},
		{"longer than the tier's", tiers.Snapshot{TTL: 2 * time.Hour}, time.Hour},
		{"shorter", tiers.Snapshot{TTL: time.Minute}, time.Minute},
		{"fresh for less", tiers.Snapshot{TTL: time.Hour, Fresh: time.Minute}, time.Minute},
		{"fresh for more", tiers.Snapshot{TTL: time.Minute, Fresh: time.Hour}, time.Minute},
	} {
		seen := map[time.Duration]bool{}
		for range 5 {
			if err := tier.Evict(t.Context(), jid); err != nil {
				t.Fatal(err)
			}
			c.s.Head.JID, c.s.HasReturns = jid, true
			fill(t, tier, c.s)
			for _, kind := range []string{"h", "r"} {
				ttl := ttlOf(t, o, kind)
				if ttl <= c.longer*8/10 || ttl > c.longer {
					t.Errorf("%s: TTL of %s is %v; want about %v and no more", c.name, kind, ttl, c.longer)
				}
				seen[ttl.Truncate(100*time.Millisecond)] = true
			}
		}
		if len(seen) < 3 {
			t.Errorf("%s: TTLs %v; want jitter", c.name, seen)
		}
	}
	fill(t, tier, tiers.Snapshot{Head: job.Head{JID: jid}, TTL: -1})
	if isHeld(t, tier, jid) {
		t.Error("held with a negative TTL")
	}
}

// TestKeepShortensTTL: a load that says how long its job is kept comes as a fact, too.
func TestKeepShortensTTL(t *testing.T) {
	born, _ := jid.Time()
	o := defaults(redis.Options{TTL: time.Hour, Now: func() time.Time { return born.Add(time.Minute) }})
	tier := open(t, o)
	create(t, tier, jid)
	load := publish(jid, 1)
	load.Keep = 600
	merge(t, tier, load)
	for _, kind := range []string{"h", "r"} {
		if ttl := ttlOf(t, o, kind); ttl > 9*time.Minute || ttl < 8*time.Minute {
			t.Errorf("TTL of %s is %v; want the 9 min that are left", kind, ttl)
		}
	}
	load.Version, load.Keep = version(2), job.KeepForever
	merge(t, tier, load)
	if ttl := ttlOf(t, o, "h"); ttl > 9*time.Minute {
		t.Errorf("TTL is %v; a merge does not lengthen it", ttl)
	}
}

// TestExpires: and Redis does forget it.
func TestExpires(t *testing.T) {
	tier := open(t, redis.Options{})
	fill(t, tier, tiers.Snapshot{Head: job.Head{JID: jid}, HasReturns: true, TTL: 20 * time.Millisecond})
	eventually(t, "the job is forgotten", func() bool { return !isHeld(t, tier, jid) })
	if page, err := tier.Returns(t.Context(), jid, tiers.ReturnQuery{}); !errors.Is(err, tiers.ErrNotFound) {
		t.Errorf("Returns = %+v, %v; want ErrNotFound", page, err)
	}
}

// TestTooLarge: a job is held without its returns, or not at all, and never with a part of them.
func TestTooLarge(t *testing.T) {
	big := func(m job.Minion, size int) job.Return {
		r := ret(jid, m, 1)
		r.Ret = make([]byte, size)
		return r
	}
	reset := func(tier *redis.Tier) {
		t.Helper()
		if err := tier.Evict(t.Context(), jid); err != nil {
			t.Fatal(err)
		}
	}
	hasReturns := func(tier *redis.Tier) bool {
		t.Helper()
		_, err := tier.Returns(t.Context(), jid, tiers.ReturnQuery{})
		if err != nil && !errors.Is(err, tiers.ErrNotFound) {
			t.Fatal(err)
		}
		return err == nil
	}
	tier := open(t, redis.Options{MaxValue: 10_000, MaxJob: 25_000})

	create(t, tier, jid)
	merge(t, tier, big("a", 9000), big("b", 9000))
	if !hasReturns(tier) {
		t.Error("a job below the limit is not held with its returns")
	}
	merge(t, tier, big("c", 9000))
	if !isHeld(t, tier, jid) || hasReturns(tier) {
		t.Error("a job that grew above the limit: want its head held, and not its returns")
	}

	reset(tier)
	fill(t, tier, tiers.Snapshot{
		Head: job.Head{JID: jid}, Returns: []job.Return{big("a", 9000), big("b", 9000), big("c", 9000)}, HasReturns: true,
	})
	if !isHeld(t, tier, jid) || hasReturns(tier) {
		t.Error("a fill above the limit: want its head held, and not its returns")
	}

	reset(tier)
	create(t, tier, jid)
	merge(t, tier, big("a", 11_000))
	if isHeld(t, tier, jid) {
		t.Error("a job is held without a return that is too large")
	}
	load := publish(jid, 1)
	load.Payload = make([]byte, 11_000)
	fill(t, tier, tiers.Snapshot{Head: job.Head{JID: jid, Load: &load}, HasReturns: true})
	if isHeld(t, tier, jid) {
		t.Error("a job is held whose load is too large")
	}
}

// TestRepeatIsSmall: a repeat, a list of minions that comes again, and a fill of what is there do not grow a job.
func TestRepeatIsSmall(t *testing.T) {
	o := defaults(redis.Options{})
	tier := open(t, o)
	create(t, tier, jid)
	facts := []job.Fact{publish(jid, 1), job.Minions{JID: jid, Version: 2, IDs: minionIDs(50)}, ret(jid, "a", 3)}
	merge(t, tier, facts...)
	size := func() int64 {
		client := raw(t, shared)
		keys, err := client.Keys(t.Context(), "saltern:"+o.Namespace+":*{"+string(jid)+"}[hr]").Result()
		if err != nil || len(keys) != 2 {
			t.Fatal(keys, err)
		}
		n := int64(0)
		for _, k := range keys {
			n += client.MemoryUsage(t.Context(), k, 0).Val()
		}
		return n
	}
	before := size()
	for i := range 10 {
		m := job.Minions{JID: jid, Version: version(i), IDs: minionIDs(50)}
		slices.Reverse(m.IDs)
		merge(t, tier, facts[0], m, facts[2])
	}
	if after := size(); after > before+100 {
		t.Errorf("a job grew from %d to %d bytes by repeats", before, after)
	}
}
