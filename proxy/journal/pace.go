package journal

import (
	"time"

	"saltern/policy"
)

const (
	// leastShare of the rate of the replay stays, however slow the calls beside it are: it has to end.
	leastShare = 20
	// roundTime is how long the replay goes before it looks at what it does to the calls beside it, and restTime how
	// long it then rests, so that there are calls to compare with.
	roundTime = 500 * time.Millisecond
	restTime  = 100 * time.Millisecond
	// stepTime is how long a batch should last at the rate that is aimed at: at a low rate it is small, so that no
	// call is behind many facts.
	stepTime = 10 * time.Millisecond
	// leastBatch is the smallest batch; smaller ones cost the store more than they spare the calls beside them.
	leastBatch = 16
)

// pace holds the replay to a rate that the calls beside it can bear. The replay alone uses it.
type pace struct {
	s     *Store
	yield *policy.Yield
	from  time.Time // begin of the round; zero for none
	facts int       // sent in it
}

func newPace(s *Store) *pace {
	most := float64(s.o.ReplayRate)
	return &pace{s: s, yield: policy.NewYield(policy.YieldOptions{Most: most, Least: most / leastShare})}
}

// batch is how many entries the next batch may have.
func (p *pace) batch() int {
	return min(max(int(p.yield.Rate()*stepTime.Seconds()), leastBatch), replayEntries)
}

// sent notes that the store took a batch, and waits until the next one may go.
func (p *pace) sent(facts int, start time.Time) {
	if p.from.IsZero() {
		p.from = start
		p.s.live.enter(replaying)
	}
	p.facts += facts
	// What a batch took longer than it should is not caught up on by the next ones.
	least := time.Duration(float64(facts) / p.yield.Rate() * float64(time.Second))
	p.s.sleep(least - time.Since(start))
	took := time.Since(p.from)
	p.s.rate.Store(int64(float64(p.facts) / took.Seconds()))
	if took < roundTime {
		return
	}
	p.s.live.enter(resting)
	p.s.sleep(restTime)
	p.s.live.enter(replaying)
	p.yield.Next(p.s.live.take())
	p.from, p.facts = time.Time{}, 0
}

// idle notes that nothing is left to replay.
func (p *pace) idle() {
	p.s.live.enter(idle)
	p.s.rate.Store(0)
	p.from, p.facts = time.Time{}, 0
}
