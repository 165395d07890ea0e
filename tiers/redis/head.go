package redis

import (
	"context"
	"fmt"

	"saltern/job"
	"saltern/tiers"
)

// Head gives the head of a job that is held. Returns are not read.
func (t *Tier) Head(ctx context.Context, jid job.JID) (job.Head, error) {
	lease := word()
	a, err := t.call(ctx, "head", headScript, jid, lease, t.o.Lease.Milliseconds(), t.guard())
	if err != nil {
		return job.Head{}, t.orForeign(ctx, jid, err)
	}
	if a.kind != "held" {
		return job.Head{}, t.miss(a.kind, lease)
	}
	h := job.Head{JID: jid}
	fields := a.strings(0)
	complete := false
	var lists [][]job.Minion
	for i := 0; i+1 < len(fields); i += 2 {
		name, value := *fields[i], *fields[i+1]
		switch {
		case name == fieldComplete && value == layout:
			complete = true
		case name == fieldAbsent && value == layout && len(fields) == 2:
			t.counts.absents.Add(1)
			return job.Head{}, tiers.ErrAbsent
		case name[:min(1, len(name))] == fieldMinions:
			var m job.Minions
			m, err = openValue[job.Minions](value, jid)
			lists = append(lists, m.IDs)
		default:
			err = headField(&h, name, value)
		}
		if err != nil {
			return job.Head{}, t.corrupt(ctx, jid, err)
		}
	}
	if !complete {
		return job.Head{}, t.corrupt(ctx, jid, fmt.Errorf("%w: not a head of this layout", job.ErrCorrupt))
	}
	h.Minions = job.UnionMinions(lists...)
	t.counts.hits.Add(1)
	return h, nil
}

// headField reads a field of which there is one.
func headField(h *job.Head, name, value string) error {
	var err error
	switch name {
	case fieldLoad:
		h.Load, err = opened[job.Load](value, h.JID)
		if err == nil && job.Rank(value[0]) != h.Load.Rank {
			err = fmt.Errorf("%w: rank", job.ErrCorrupt)
		}
	case fieldEndTime:
		h.EndTime, err = opened[job.EndTime](value, h.JID)
	case fieldNoCache:
		h.NoCache, err = opened[job.NoCache](value, h.JID)
	default:
		err = fmt.Errorf("%w: unknown field", job.ErrCorrupt)
	}
	return err
}

func opened[F job.Fact](value string, jid job.JID) (*F, error) {
	f, err := openValue[F](value, jid)
	return &f, err
}

// miss counts a miss and gives its error, with the lease where one was given.
func (t *Tier) miss(kind, lease string) error {
	switch kind {
	case "absent":
		t.counts.absents.Add(1)
		return tiers.ErrAbsent
	case "lease":
		t.counts.misses.Add(1)
		return &tiers.Miss{Lease: lease}
	default:
		t.counts.misses.Add(1)
		return tiers.ErrNotFound
	}
}

// corrupt deletes a job with a value that is not ours, or not whole, and makes it a miss.
func (t *Tier) corrupt(ctx context.Context, jid job.JID, why error) error {
	t.counts.corrupt.Add(1)
	t.counts.misses.Add(1)
	t.log.Warn("a value in redis is not a fact of ours; its job is deleted there and read from the store",
		"jid", jid, "err", why)
	if err := t.Evict(ctx, jid); err != nil {
		return err
	}
	return tiers.ErrNotFound
}

// orForeign takes a key of another type for a corrupt job; other errors are themselves.
func (t *Tier) orForeign(ctx context.Context, jid job.JID, err error) error {
	if !isWrongType(err) {
		return err
	}
	return t.corrupt(ctx, jid, err)
}
