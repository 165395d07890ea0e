package proxy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"saltern/job"
	"saltern/policy"
	"saltern/telemetry"
	"saltern/tiers"
)

// fanOut writes facts to every tier under the cache at once. The store's answer is the answer; it
// does not wait for a shared tier. A shared tier is not asked for the jobs of facts that it has not
// taken yet, and what it does not take, or has without the store, is remembered.
func (p *Proxy) fanOut(ctx context.Context, facts []job.Fact) ([]job.Outcome, error) {
	beginnings := p.beginnings(facts)
	var stored bool
	answered := make(chan struct{}) // closed once stored is set
	for i, t := range p.o.Shared {
		p.lags[i].begin(facts)
		p.loops.Go(func() {
			taken := p.mergeShared(i, t, beginnings, facts)
			<-answered
			p.lags[i].end(facts, taken && stored)
			if i == 0 && stored && p.o.Backplane != nil {
				// Only now: who is told reads the shared tiers first.
				p.o.Backplane.Publish(facts...)
			}
		})
	}
	ctx, cancel := context.WithTimeout(ctx, p.o.WriteBudget)
	defer cancel()
	start := telemetry.Now()
	outcomes, err := p.o.Store.Merge(ctx, facts)
	p.tierAsked(telemetry.StepsOf(ctx), len(p.lower)-1, telemetry.Write, answerOf(err), start)
	stored = err == nil
	close(answered)
	if err != nil {
		return nil, fmt.Errorf("write to %s: %w", p.o.Store.Name(), err)
	}
	return outcomes, nil
}

// beginnings are the jobs that begin with these facts for certain, as they were minted here: other
// proxies find them in the shared tiers at once, also when the store takes its time.
func (p *Proxy) beginnings(facts []job.Fact) []tiers.Snapshot {
	if len(p.o.Shared) == 0 {
		return nil
	}
	var jobs []tiers.Snapshot
	for _, f := range facts {
		l, isLoad := f.(job.Load)
		if !isLoad || l.Rank != job.RankPublish || !p.minted.has(l.JID) {
			continue
		}
		own := slices.DeleteFunc(slices.Clone(facts), func(f job.Fact) bool { return f.Job() != l.JID })
		s := with(tiers.Snapshot{Head: job.Head{JID: l.JID}, HasReturns: true}, own)
		ttl, fresh := p.ttl(s.Head, false)
		s.TTL = policy.TTL(ttl, fresh, false)
		jobs = append(jobs, s)
	}
	return jobs
}

// mergeShared writes facts to one shared tier and says whether it took them. What it held before, and
// a filling that it declines, are what the merge is for.
func (p *Proxy) mergeShared(i int, t tiers.Tier, beginnings []tiers.Snapshot, facts []job.Fact) (taken bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), p.o.WriteBudget)
	defer cancel()
	var err error
	start := telemetry.Now()
	if filler, can := t.(tiers.Filler); can {
		for _, s := range beginnings {
			err = errors.Join(err, filler.Fill(ctx, s))
		}
	}
	if err == nil {
		_, err = t.Merge(ctx, facts)
	}
	// Nobody waits for it, so it is in no lookup.
	p.tierAsked(nil, i, telemetry.Write, answerOf(err), start)
	if err != nil {
		p.Stats.MissedFacts.Add(uint64(len(facts)))
	}
	return err == nil
}

// lag knows the jobs that a shared tier is not to be asked for: those with a write on its way, and
// those of which it and the store do not hold the same.
type lag struct {
	mu      sync.RWMutex // guards the rest
	writing map[job.JID]int
	missed  map[job.JID]uint64 // how often a write of the job was missed
	all     bool               // too many were missed to remember: the tier has to forget everything
	// times counts what was missed while all was set.
	times uint64
	// dirty is told when the first write is missed, and when nothing missed is left.
	dirty func(bool)
}

// maxMissed bounds the memory of an outage. Beyond it the tier has to forget everything, and one
// that cannot is not asked any more.
const maxMissed = 100_000

func newLag(dirty func(bool)) *lag {
	return &lag{writing: make(map[job.JID]int), missed: make(map[job.JID]uint64), dirty: dirty}
}

// suspect begins with jobs of which it is not known whether the tier has all that was written; all
// says that it is not known of any job.
func (l *lag) suspect(jobs []job.JID, all bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = all
	for _, jid := range jobs {
		l.miss(jid)
	}
}

// behind says whether the tier may not have all that was written of a job.
func (l *lag) behind(jid job.JID) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	_, missed := l.missed[jid]
	return l.all || missed || l.writing[jid] > 0
}

func (l *lag) begin(facts []job.Fact) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range facts {
		if jid := f.Job(); jid != "" {
			l.writing[jid]++
		}
	}
}

func (l *lag) end(facts []job.Fact, stored bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range facts {
		jid := f.Job()
		if jid == "" {
			continue
		}
		if l.writing[jid]--; l.writing[jid] == 0 {
			delete(l.writing, jid)
		}
		if !stored {
			l.miss(jid)
		}
	}
}

// late notes that the store has got facts that others may have read it without.
func (l *lag) late(facts []job.Fact) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range facts {
		if jid := f.Job(); jid != "" {
			l.miss(jid)
		}
	}
}

func (l *lag) miss(jid job.JID) {
	if l.all {
		l.times++
		return
	}
	if len(l.missed) == 0 {
		l.dirty(true)
	}
	l.missed[jid]++
	if len(l.missed) > maxMissed {
		l.all = true
		clear(l.missed)
	}
}

// repairEvery is how often a tier that missed writes is tried again.
const repairEvery = time.Second

// repairLoop makes a shared tier forget the jobs of which it missed facts, once it is back.
func (p *Proxy) repairLoop(i int, t tiers.Filler) {
	tick := time.NewTicker(repairEvery)
	defer tick.Stop()
	for {
		select {
		case <-p.ctx.Done():
			return
		case <-tick.C:
			p.lags[i].repair(p.ctx, t)
		}
	}
}

// repair makes the tier forget jobs, up to the first that it does not: it is not back yet. A job of
// which a write was missed while it was being forgotten is forgotten again next time.
func (l *lag) repair(ctx context.Context, t tiers.Filler) {
	if !l.repairAll(ctx, t) {
		return
	}
	jobs := l.repairable()
	if len(jobs) == 0 {
		return
	}
	defer l.clean()
	for jid, times := range jobs {
		if err := t.Evict(ctx, jid); err != nil {
			return
		}
		l.mu.Lock()
		if l.missed[jid] == times {
			delete(l.missed, jid)
		}
		l.mu.Unlock()
	}
}

// repairAll makes the tier forget everything where that is needed, and says whether single jobs can
// be seen to. What was missed meanwhile makes it forget everything once more.
func (l *lag) repairAll(ctx context.Context, t tiers.Filler) bool {
	l.mu.RLock()
	all, times := l.all, l.times
	l.mu.RUnlock()
	if !all {
		return true
	}
	f, can := t.(tiers.Forgetter)
	if !can || f.ForgetAll(ctx) != nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = l.times != times
	if !l.all {
		l.dirty(len(l.missed) > 0)
	}
	return !l.all
}

// clean says that nothing is missed any more, when that is so.
func (l *lag) clean() {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if len(l.missed) == 0 && !l.all {
		l.dirty(false)
	}
}

// repairable are the missed jobs without a write on its way. A write that begins after the eviction
// of its job cannot be hidden by it, as it is sent to the tier later.
func (l *lag) repairable() map[job.JID]uint64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	jobs := make(map[job.JID]uint64, len(l.missed))
	for jid, times := range l.missed {
		if l.writing[jid] == 0 {
			jobs[jid] = times
		}
	}
	return jobs
}
