package memory_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"saltern/tiers/memory"
)

// A trace of jobs: each is published, its minions return, and it is polled meanwhile, as are the few
// before it and now and then an older one. The cache has room for a part of them. TinyLFU alone hits
// 8 to 46 % of such reads, an LRU 94 to 97 %.
func TestFreshJobsAreHit(t *testing.T) {
	const jobs, minions = 3000, 20
	// A job takes some 10 kB, so there is room for about 400 in all and 100 in the window.
	c := open(t, memory.Options{MaxBytes: 4 << 20})
	r := rand.New(rand.NewPCG(1, 2))
	reads, hits := 0, 0
	poll := func(i int) {
		reads++
		if returned(t, c, jidAt(i)) >= 0 {
			hits++
			return
		}
		fill(t, c, publish(jidAt(i)), time.Hour)
		for m := range minions {
			merge(t, c, ret(jidAt(i), m))
		}
	}
	for i := range jobs {
		fill(t, c, publish(jidAt(i)), time.Hour)
		for m := range minions {
			merge(t, c, ret(jidAt(i), m))
			poll(max(0, i-int(r.ExpFloat64()*5)))
		}
		if i%10 == 0 {
			poll(r.IntN(i + 1))
		}
	}
	ratio := float64(hits) / float64(reads)
	t.Logf("hit ratio %.4f, %+v", ratio, c.Stats())
	if ratio < 0.95 {
		t.Errorf("hit ratio %.3f; want at least 0.95", ratio)
	}
}
