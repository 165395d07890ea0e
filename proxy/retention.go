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

// ttl is how long a cache may keep a job; zero for as long as it likes, negative when it may not.
// It is jittered, so that what was cached together does not end together.
func (p *Proxy) ttl(h job.Head, sealed bool) time.Duration {
	ttl := p.ttlOf(h, sealed)
	if ttl <= 0 {
		return ttl
	}
	return policy.Jitter(ttl, policy.Random)
}

func (p *Proxy) ttlOf(h job.Head, sealed bool) time.Duration {
	if h.Load == nil || h.Load.Keep < 0 {
		// The store has a default, or knows it from facts that are not in a head.
		return policy.TTL(p.o.ExpireEvery, p.o.Staleness, false)
	}
	keep := keepDuration(h.Load.Keep)
	if keep == 0 {
		return policy.TTL(0, p.o.Staleness, sealed)
	}
	left := keep - p.o.Now().Sub(h.JID.PlausibleTime(h.Load.Version.Time()))
	if left <= 0 {
		return -1
	}
	return policy.TTL(left, p.o.Staleness, sealed)
}

// keepDuration is a keep as a duration, zero for ever. Beyond 292 years a duration ends: those are
// kept for ever too.
func keepDuration(k job.Keep) time.Duration {
	if int64(k) > math.MaxInt64/int64(time.Second) {
		return 0
	}
	return time.Duration(k) * time.Second
}
