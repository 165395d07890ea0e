package policy

import (
	"math/rand/v2"
	"time"
)

// TTL says how long a cache may keep a job: not beyond the job's own end, and not beyond the
// staleness bound where somebody else might change the job without our seeing it. Zero means for
// as long as the cache likes; a negative answer that it may not be kept at all.
//
// left is how long the job still lives, zero for ever. bound is the staleness bound, zero where no
// one else writes. A sealed job does not change any more, so that the bound does not hold for it.
func TTL(left, bound time.Duration, sealed bool) time.Duration {
	if left < 0 {
		return -1
	}
	if bound == 0 || sealed {
		return left
	}
	if left == 0 {
		return bound
	}
	return min(left, bound)
}

// jitterShare is by how much Jitter shortens at most. With 10 % of an hour, no tenth of a second
// has more than a thousandth of what was stored in one second.
const jitterShare = 0.1

// Jitter shortens a TTL by up to a tenth, so that what was stored together does not expire
// together. r gives numbers in [0, 1).
func Jitter(ttl time.Duration, r func() float64) time.Duration {
	return ttl - time.Duration(jitterShare*r()*float64(ttl))
}

// Random is the r of Jitter outside tests.
func Random() float64 { return rand.Float64() }
