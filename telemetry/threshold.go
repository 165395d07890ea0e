package telemetry

import (
	"math/bits"
	"sync"
	"time"
)

// window knows how long the calls of the last minute took, in buckets of a quarter of an octave.
type window struct {
	mu     sync.Mutex // guards the rest
	slices [minuteSlices][buckets4]uint32
	at     int           // the slice that is counted into
	until  time.Duration // when it ends
	p99    time.Duration // of the last minute, when it was last looked at; 0 for too few calls
}

const (
	minuteSlices = 7 // the last one is being filled
	sliceFor     = 10 * time.Second
	// buckets4 reach from 1 µs to 18 minutes.
	buckets4 = 4 * 30
	// enough is how many calls of a minute have a 99th percentile that means something.
	enough = 200
)

func bucketOf(took time.Duration) int {
	us := uint64(max(took.Microseconds(), 1))
	octave := bits.Len64(us) - 1
	quarter := 0
	if octave >= 2 {
		quarter = int(us>>(octave-2)) & 3
	}
	return min(4*octave+quarter, buckets4-1)
}

// above is the smallest time that is in no bucket up to i.
func above(i int) time.Duration {
	octave, quarter := i/4, i%4
	return time.Duration(float64(uint64(1)<<octave)*(1+float64(quarter+1)/4)*1000) * time.Nanosecond
}

// add counts a call that ended at now, and gives the 99th percentile.
func (w *window) add(now, took time.Duration) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now >= w.until {
		w.turn(now)
	}
	w.slices[w.at][bucketOf(took)]++
	return w.p99
}

// turn goes to the slice of now and looks at the minute before.
func (w *window) turn(now time.Duration) {
	// What is older than a minute goes first: after a pause there is nothing to go by.
	passed := min(1+int(max(now-w.until, 0)/sliceFor), minuteSlices)
	for range passed {
		w.at = (w.at + 1) % minuteSlices
		clear(w.slices[w.at][:])
	}
	total, counts := 0, [buckets4]int{}
	for i := range w.slices {
		for b, n := range w.slices[i] {
			counts[b] += int(n)
			total += int(n)
		}
	}
	w.p99 = 0
	if left := total / 100; total >= enough {
		i := buckets4 - 1
		for ; i > 0 && counts[i] <= left; i-- {
			left -= counts[i]
		}
		w.p99 = above(i)
	}
	w.until = now + sliceFor
}
