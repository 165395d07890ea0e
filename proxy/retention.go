package proxy

import (
	"context"
	"math"
	"time"

	"saltern/job"
	"saltern/policy"
)

// Clean asks for expired jobs to be removed soon. It does not wait for it.
func (p *Proxy) Clean() {
	select {
	case p.expire <- struct{}{}:
	default: // asked already
	}
}

func (p *Proxy) expireLoop() {
	tick := time.NewTicker(p.o.ExpireEvery)
	defer tick.Stop()
	for {
		select {
		case <-p.ctx.Done():
			return
		case <-tick.C:
		case <-p.expire:
		}
		p.expireOnce(p.ctx)
	}
}

func (p *Proxy) expireOnce(ctx context.Context) {
	start := p.o.Now()
	n, err := p.o.Store.Expire(ctx, start)
	switch {
	case err != nil && ctx.Err() == nil:
		p.o.Logger.Warn("expired jobs not removed, will be tried again", "err", err)
	case n > 0:
		p.o.Logger.Info("removed expired jobs", "jobs", n, "took", p.o.Now().Sub(start))
	}
}

// keepDuration is a keep as a duration, zero for ever. Beyond 292 years a duration ends: those are
// kept for ever too.
func keepDuration(k job.Keep) time.Duration {
	if int64(k) > math.MaxInt64/int64(time.Second) {
		return 0
	}
	return time.Duration(k) * time.Second
}

// ttlOf is policy.TTL for a job that is kept for keep (zero for ever) and is age old.
func ttlOf(keep, age, bound time.Duration, sealed bool) time.Duration {
	if keep == 0 {
		return policy.TTL(0, bound, sealed)
	}
	left := keep - age
	if left <= 0 {
		return -1
	}
	return policy.TTL(left, bound, sealed)
}
