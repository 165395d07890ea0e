package embedded

import (
	"hash/maphash"
	"slices"
	"sync"

	"saltern/job"
)

// stripeCount is how many locks the jobs, minions and events share. A merge holds those of all that
// its facts touch, for some microseconds.
const stripeCount = 512

// stripes are locks by job, minion and event: facts of one of them are merged one after another.
type stripes struct {
	once sync.Once
	seed maphash.Seed
	mu   [stripeCount]sync.Mutex
}

// lock takes the locks of facts in ascending order, and gives the function that frees them.
func (st *stripes) lock(facts []job.Fact) (unlock func()) {
	st.once.Do(func() { st.seed = maphash.MakeSeed() })
	var held [stripeCount]bool
	for _, f := range facts {
		switch f := f.(type) {
		case job.Event:
			held[st.index("e"+string(f.ID[:])+f.Master)] = true
			continue
		case job.Return:
			held[st.index("m"+string(f.Minion))] = true
		}
		held[st.index("j"+string(f.Job()))] = true
	}
	for i := range held {
		if held[i] {
			st.mu[i].Lock()
		}
	}
	return func() {
		for i := range slices.Backward(held[:]) {
			if held[i] {
				st.mu[i].Unlock()
			}
		}
	}
}

func (st *stripes) index(s string) int {
	return int(maphash.String(st.seed, s) % stripeCount)
}
