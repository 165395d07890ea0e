package redis

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"golang.org/x/sync/errgroup"

	"saltern/job"
	"saltern/tiers"
)

// mergesAtOnce is how many jobs of one Merge are written at a time.
const mergesAtOnce = 8

// Merge merges facts into the jobs that are held. Each job takes one round trip.
func (t *Tier) Merge(ctx context.Context, facts []job.Fact) ([]job.Outcome, error) {
	outcomes := make([]job.Outcome, len(facts))
	jobs := make(map[job.JID][]entry)
	for i, f := range facts {
		if jid := f.Job(); jid != "" || !isEvent(f) {
			jobs[jid] = append(jobs[jid], entry{fact: f, outcome: &outcomes[i]})
		}
	}
	group, ctx2 := errgroup.WithContext(ctx)
	group.SetLimit(mergesAtOnce)
	for jid, entries := range jobs {
		group.Go(func() error { return t.mergeJob(ctx2, jid, entries) })
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return outcomes, nil
}

func isEvent(f job.Fact) bool {
	_, is := f.(job.Event)
	return is
}

func (t *Tier) mergeJob(ctx context.Context, jid job.JID, entries []entry) error {
	w := write{doing: "merge"}
	for i := range entries {
		f := entries[i].fact
		if f.Size() > t.o.MaxValue {
			// A job is not held without one of its facts.
			return t.Evict(ctx, jid)
		}
		entries[i].place()
		if l, is := f.(job.Load); is && l.Rank > job.RankReturn && l.Keep > 0 {
			w.ttl = t.left(l)
		}
	}
	_, err := t.write(ctx, jid, w, entries)
	return err
}

// leastLeft is how long a job is held though its time has passed: the store removes it as late, too.
const leastLeft = time.Minute

// left is for how long a job with that load is still kept.
func (t *Tier) left(l job.Load) time.Duration {
	now := t.o.Now()
	end := l.JID.PlausibleTime(now).Add(time.Duration(l.Keep) * time.Second)
	return max(end.Sub(now), leastLeft)
}

// entry is a fact, where it is kept, and what became of it.
type entry struct {
	fact    job.Fact
	outcome *job.Outcome

	key, field, rule string
	bytes            int
	expected         string // the value that was read before, which may be overwritten
	value            []byte
}

// place says where and how the fact is kept.
func (e *entry) place() {
	e.key = "h"
	switch f := e.fact.(type) {
	case job.Load:
		e.field, e.rule, e.value = fieldLoad, "max", storedValue(f.Rank, 0, f)
	case job.EndTime:
		e.field, e.rule, e.value = fieldEndTime, "max", storedValue(0, 0, f)
	case job.NoCache:
		e.field, e.rule, e.value = fieldNoCache, "min", storedValue(0, 0, f)
	case job.Minions:
		f.IDs = job.UnionMinions(f.IDs)
		e.field, e.rule, e.value = minionsField(f.IDs), "set", storedValue(0, 0, f)
	case job.Return:
		e.key, e.field, e.rule, e.bytes = "r", minionField(f.Minion), "min", f.PayloadBytes()
		e.value = storedValue(0, sameDigest(f), f)
	}
}

// write is one call of the script.
type write struct {
	doing      string
	lease      string
	ttl        time.Duration
	hasReturns bool
}

// tieTries is how often two facts of one version are tried to be put in order.
const tieTries = 4

// write makes a call of the script, and further ones for facts of the same version as those that are there: two
// masters never give out one version, so there are none but in tests and after a clock went wrong. It says
// whether a fill was taken.
func (t *Tier) write(ctx context.Context, jid job.JID, w write, entries []entry) (bool, error) {
	for range tieTries {
		a, err := t.call(ctx, w.doing, writeScript, jid, w.args(t, entries)...)
		if err != nil {
			return false, t.orDeleted(err)
		}
		switch a.kind {
		case "declined":
			return false, nil
		case "corrupt":
			t.counts.corrupt.Add(1)
			t.log.Warn("a value in redis is not a fact of ours; its job was deleted there", "jid", jid)
			return true, nil
		}
		entries, err = settle(jid, entries, a)
		if err != nil {
			return true, t.Evict(ctx, jid)
		}
		if len(entries) == 0 {
			return true, nil
		}
		w.doing = "merge"
	}
	// Somebody else always comes in between: rather no job than a wrong one.
	return true, t.Evict(ctx, jid)
}

func (w write) args(t *Tier, entries []entry) []any {
	args := make([]any, 0, 7+6*len(entries))
	hasReturns := ""
	if w.hasReturns {
		hasReturns = "1"
	}
	args = append(args, w.doing, w.lease, w.ttl.Milliseconds(), hasReturns, t.guard(),
		t.o.MaxJob, word())
	for _, e := range entries {
		args = append(args, e.key, e.field, e.rule, e.bytes, e.expected, e.value)
	}
	return args
}

// guard is in ms, 0 for none.
func (t *Tier) guard() int64 { return max(0, t.o.Guard.Milliseconds()) }

// orDeleted is nil where the script met a key of another type: it then deleted the job.
func (t *Tier) orDeleted(err error) error {
	if !isWrongType(err) {
		return err
	}
	t.counts.corrupt.Add(1)
	return nil
}

// settle notes what became of the facts, and gives those that are to be written over a value of the same
// version.
func settle(jid job.JID, entries []entry, a answer) ([]entry, error) {
	outcomes, ties := a.text(0), a.strings(1)
	if len(outcomes) != len(entries) {
		return nil, errAnswer
	}
	var left []entry
	for i, e := range entries {
		var err error
		again := false
		switch outcomes[i] {
		case 't':
			if len(ties) == 0 || ties[0] == nil {
				return nil, errAnswer
			}
			again, err = e.settleTie(jid, *ties[0])
			ties = ties[1:]
		case '2':
			e.note(job.Repeat)
		case '3':
			e.note(job.Differs)
		case '4':
			e.note(job.Dropped)
		default:
			e.note(job.Stored)
		}
		if err != nil {
			return nil, err
		}
		if again {
			left = append(left, e)
		}
	}
	return left, nil
}

// note says what became of the fact. For facts of a head there is but one answer.
func (e *entry) note(o job.Outcome) {
	if _, isReturn := e.fact.(job.Return); !isReturn {
		o = job.Stored
	}
	if e.outcome != nil {
		*e.outcome = o
	}
}

// settleTie decides by all that the two facts have, and says whether the one that is there is to be overwritten.
func (e *entry) settleTie(jid job.JID, have string) (again bool, err error) {
	e.note(job.Stored)
	switch f := e.fact.(type) {
	case job.Load:
		again, err = beats(have, jid, f, job.MergeLoad)
	case job.EndTime:
		again, err = beats(have, jid, f, job.MergeEndTime)
	case job.NoCache:
		again, err = beats(have, jid, f, job.MergeNoCache)
	case job.Return:
		differ := false
		again, err = beats(have, jid, f, func(a, b job.Return) (w job.Return) {
			w, differ = job.MergeReturn(a, b)
			return w
		})
		switch {
		case !differ:
			e.note(job.Repeat)
		case !again:
			e.note(job.Differs)
		}
	default:
		err = fmt.Errorf("%w: %T", tiers.ErrInvalid, f)
	}
	e.expected = have
	return again, err
}

// beats says whether a fact stays, merged with the one that is there.
func beats[F job.Fact](have string, jid job.JID, f F, merge func(a, b F) F) (bool, error) {
	there, err := openValue[F](have, jid)
	if err != nil {
		return false, err
	}
	return !reflect.DeepEqual(merge(there, f), there), nil
}
