package policy

import (
	"slices"
	"time"
)

// YieldOptions configure a Yield. Zero fields of the factors take the defaults named.
type YieldOptions struct {
	// Most and Least bound the rate, in units of work a second.
	Most, Least float64
	// Slower is how much slower calls may be beside the work than without it; default 1.7.
	Slower float64
	// Slack is added to that, so that calls of a fraction of a millisecond are not compared by their noise; default
	// 1 ms.
	Slack time.Duration
	// MinCalls is how many calls of a round say anything; default 12.
	MinCalls int
}

// Yield sets the rate of work in the background by how much it slows calls that somebody waits for. A round has the times
// of calls that began while the work was done, and of those that began while it rested: the two are compared with each
// other, so that nobody has to say what is slow for this store, on this machine, today.
type Yield struct {
	o     YieldOptions
	rate  float64
	times []time.Duration // of calls without the work, too few yet to say anything
	quiet time.Duration   // what those take, averaged over rounds; 0 for not known
}

// Round is what was seen since the decision before.
type Round struct {
	// Beside are the times of calls beside the work, Quiet of calls without it. Both are sorted in place.
	Beside, Quiet []time.Duration
}

const (
	// yieldQuantile of the times is compared: the median hides what the slow calls suffer, and the slowest of a
	// round is chance.
	yieldQuantile = 0.95
	// The rate falls by more than it rises with calls beside the work, and rises fast where there are none.
	yieldFall, yieldRise, yieldFree = 0.6, 1.15, 1.6
	// quietShare is the weight of a new round in the average of the calls without the work.
	quietShare = 0.3
)

// NewYield starts at the least rate, from which it rises to the most within a few rounds if nobody minds.
func NewYield(o YieldOptions) *Yield {
	if o.Slower == 0 {
		o.Slower = 1.7
	}
	if o.Slack == 0 {
		o.Slack = time.Millisecond
	}
	if o.MinCalls == 0 {
		o.MinCalls = 12
	}
	return &Yield{o: o, rate: o.Least}
}

// Rate is how much work may be done, in units a second.
func (y *Yield) Rate() float64 { return y.rate }

// Next takes what was seen and sets the rate for the next round.
func (y *Yield) Next(r Round) {
	if y.times = append(y.times, r.Quiet...); len(y.times) >= y.o.MinCalls {
		if q := quantile(y.times); y.quiet == 0 {
			y.quiet = q
		} else {
			y.quiet += time.Duration(quietShare * float64(q-y.quiet))
		}
		y.times = nil
	}
	switch {
	case len(r.Beside)+len(r.Quiet) < y.o.MinCalls:
		y.rate *= yieldFree
	case len(r.Beside) < y.o.MinCalls || y.quiet == 0:
		// Calls are made, and nothing can be said about them yet.
	case quantile(r.Beside) > time.Duration(y.o.Slower*float64(y.quiet))+y.o.Slack:
		y.rate *= yieldFall
	default:
		y.rate *= yieldRise
	}
	y.rate = min(max(y.rate, y.o.Least), y.o.Most)
}

func quantile(times []time.Duration) time.Duration {
	slices.Sort(times)
	return times[min(len(times)-1, int(yieldQuantile*float64(len(times))))]
}
