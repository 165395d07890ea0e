package redis

import (
	"context"
	"math/rand/v2"
	"time"

	"saltern/job"
	"saltern/tiers"
)

// Fill merges a snapshot into what is held of the job, or makes it held. It is declined where the lease is not
// the one that was given last, or a fact came since. A snapshot without a lease is its sender's word that it is
// all that there is, as of a job that was just created; it is declined only where a fact came within
// Options.Guard.
func (t *Tier) Fill(ctx context.Context, s tiers.Snapshot) error {
	jid := s.Head.JID
	if s.TTL < 0 {
		return t.Evict(ctx, jid)
	}
	w := write{doing: "fill", lease: s.Lease, hasReturns: s.HasReturns, ttl: t.ttl(s.TTL, s.Fresh)}
	var entries []entry
	switch {
	case s.Absent:
		w.doing = "absent"
	case s.Head.Size() > t.o.MaxValue:
		t.counts.declined.Add(1)
		return nil
	default:
		entries = headEntries(s.Head)
	}
	if w.hasReturns && !s.Absent {
		returns, fits := t.returnEntries(s.Returns)
		entries, w.hasReturns = append(entries, returns...), fits
	}
	taken, err := t.write(ctx, jid, w, entries)
	if err != nil {
		return err
	}
	if taken {
		t.counts.fills.Add(1)
	} else {
		t.counts.declined.Add(1)
	}
	return nil
}

// ttlJitter is the part of a TTL that is taken off at random, so that what was filled together does not expire
// together.
const ttlJitter = 0.1

// ttl is the shortest of what is asked for, where it is, and Options.TTL.
func (t *Tier) ttl(asked ...time.Duration) time.Duration {
	ttl := t.o.TTL
	for _, d := range asked {
		if d > 0 {
			ttl = min(ttl, d)
		}
	}
	return max(ttl-time.Duration(rand.Float64()*ttlJitter*float64(ttl)), time.Millisecond)
}

func headEntries(h job.Head) []entry {
	var entries []entry
	add := func(f job.Fact) {
		e := entry{fact: f}
		e.place()
		entries = append(entries, e)
	}
	if h.Load != nil {
		add(*h.Load)
	}
	if len(h.Minions) > 0 {
		add(job.Minions{JID: h.JID, IDs: h.Minions, Keep: job.KeepUnset})
	}
	if h.EndTime != nil {
		add(*h.EndTime)
	}
	if h.NoCache != nil {
		add(*h.NoCache)
	}
	return entries
}

// returnEntries gives the returns of a job and true, or, where they are too large to be held, false.
func (t *Tier) returnEntries(returns []job.Return) ([]entry, bool) {
	bytes := 0
	entries := make([]entry, 0, len(returns))
	for _, r := range returns {
		bytes += r.PayloadBytes()
		if r.Size() > t.o.MaxValue || bytes > t.o.MaxJob {
			return nil, false
		}
		e := entry{fact: r}
		e.place()
		entries = append(entries, e)
	}
	return entries, true
}

// Evict forgets a job. Fills of it that began before are declined.
func (t *Tier) Evict(ctx context.Context, jid job.JID) error {
	_, err := t.call(ctx, "evict", evictScript, jid)
	return err
}
