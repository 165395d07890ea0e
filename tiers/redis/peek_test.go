package redis_test

import (
	"testing"

	"saltern/testbed"
	"saltern/tiers/redis"
)

// TestPeekChangesNothing: a look into a job that is not held gives no lease, one into a job that is held keeps it
// no longer and counts as no read.
func TestPeekChangesNothing(t *testing.T) {
	node := start(t, testbed.RedisOptions{})
	tier := open(t, redis.Options{Addrs: []string{node.Address()}})
	none, err := tier.Peek(t.Context(), "20270105120000000009")
	if err != nil || none.Held || none.Absent {
		t.Fatalf("of a job that is not held: %+v, %v", none, err)
	}
	const jid = "20270105120000000000"
	create(t, tier, jid)
	merge(t, tier, publish(jid, 1), ret(jid, "a", 1), ret(jid, "b", 1))
	keys, err := node.Command(t.Context(), "DBSIZE")
	if err != nil {
		t.Fatal(err)
	}
	before := tier.Stats()
	p, err := tier.Peek(t.Context(), jid)
	if err != nil || !p.Held || p.Returns != 2 || p.Version != publish(jid, 1).Version || p.TTL <= 0 {
		t.Errorf("of a job with two returns: %+v, %v", p, err)
	}
	if after := tier.Stats(); after.Hits != before.Hits || after.Misses != before.Misses {
		t.Errorf("looking counted as a read: %+v, then %+v", before, after)
	}
	again, err := tier.Peek(t.Context(), jid)
	if err != nil || again.TTL > p.TTL {
		t.Errorf("the job is kept for %s, after a look for %s, %v", p.TTL, again.TTL, err)
	}
	if n, err := node.Command(t.Context(), "DBSIZE"); err != nil || n != keys {
		t.Errorf("there are %s keys after looking; before, %s", n, keys)
	}
}
