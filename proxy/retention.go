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

// ttl is how long a cache may keep a job; zero for as long as it likes, negative when it may not. It
// is jittered, so that what was cached together does not end together. fresh is how long the job may
// be answered with unasked, zero for as long: others may write to one that is not sealed.
func (p *Proxy) ttl(h job.Head, sealed bool) (ttl, fresh time.Duration) {
	if !sealed {
		fresh = policy.Jitter(p.o.Staleness, policy.Random)
	}
	if ttl = p.left(h); ttl > 0 {
		ttl = policy.Jitter(ttl, policy.Random)
	}
	return ttl, fresh
}

// left is how long a job still lives: zero for ever, negative when it is over.
func (p *Proxy) left(h job.Head) time.Duration {
	if h.Load == nil || h.Load.Keep < 0 {
		// The store has a default, or knows it from facts that are not in a head.
		return p.o.ExpireEvery
	}
	keep := keepDuration(h.Load.Keep)
	if keep == 0 {
		return 0
	}
	if left := keep - p.o.Now().Sub(h.JID.PlausibleTime(h.Load.Version.Time())); left > 0 {
		return left
	}
	return -1
}

// keepDuration is a keep as a duration, zero for ever. Beyond 292 years a duration ends: those are
// kept for ever too.
func keepDuration(k job.Keep) time.Duration {
	if int64(k) > math.MaxInt64/int64(time.Second) {
		return 0
	}
	return time.Duration(k) * time.Second
}
