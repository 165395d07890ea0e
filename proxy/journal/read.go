package journal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"saltern/job"
	"saltern/tiers"
)

// Head gives the head of a job as the store and the log together have it. Where the store cannot be
// asked, a job whose publish waits in the log is answered from the log alone.
func (s *Store) Head(ctx context.Context, jid job.JID) (job.Head, error) {
	// The index is looked at first: what the store confirms in between is then in both.
	in, whole, pending := s.index.pendingHead(jid)
	asking, cancel := s.patience(ctx, whole)
	defer cancel()
	ended := s.live.begin()
	h, err := s.under.Head(asking, jid)
	ended()
	if !pending {
		return h, err
	}
	if err != nil {
		if !s.canAnswer(err, whole) {
			return job.Head{}, err
		}
		h = job.Head{JID: jid}
	}
	for _, e := range dedup(in) {
		facts, err := s.factsOf(e)
		if err != nil {
			return job.Head{}, err
		}
		for _, f := range facts {
			if f.Job() == jid {
				h = h.With(f)
			}
		}
	}
	return h, nil
}

// patience is how long the store is asked for a job: no longer than AckWait where the log can answer
// for it, as what a store that hangs is waited for is added to every read.
func (s *Store) patience(ctx context.Context, whole bool) (context.Context, context.CancelFunc) {
	if !whole {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, s.o.AckWait)
}

// canAnswer says whether the log may answer for a job after this error of the store.
func (s *Store) canAnswer(err error, whole bool) bool {
	if errors.Is(err, tiers.ErrNotFound) {
		return true
	}
	if whole {
		s.degraded.Add(1)
	}
	return whole
}

func dedup(in []*entry) []*entry {
	slices.SortFunc(in, func(a, b *entry) int { return cmp.Compare(a.seq, b.seq) })
	return slices.Compact(in)
}

// factsOf gives the facts of an entry from memory or from the log. An entry that has gone from both
// was confirmed long ago.
func (s *Store) factsOf(e *entry) ([]job.Fact, error) {
	if facts := s.queue.held(e); facts != nil {
		return facts, nil
	}
	facts, err := s.log.read(e.seq)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", tiers.ErrUnavailable, err)
	}
	return facts, nil
}

// Returns gives returns of a job as the store and the log together have them; see Head.
func (s *Store) Returns(ctx context.Context, jid job.JID, q tiers.ReturnQuery) (tiers.ReturnPage, error) {
	in, whole, pending := s.index.pendingReturns(jid, func(m job.Minion) bool {
		return m > q.After && (q.Only == nil || slices.Contains(q.Only, m))
	})
	asking, cancel := s.patience(ctx, whole)
	defer cancel()
	ended := s.live.begin()
	page, err := s.under.Returns(asking, jid, q)
	ended()
	if !pending {
		return page, err
	}
	if err != nil {
		if !s.canAnswer(err, whole) {
			return tiers.ReturnPage{}, err
		}
		page = tiers.ReturnPage{}
	}
	waiting, err := s.pendingReturns(jid, in, page.Next)
	if err != nil {
		return tiers.ReturnPage{}, err
	}
	page.Returns = mergeReturns(page.Returns, waiting)
	return cut(page, q.MaxBytes), nil
}

// pendingReturns reads pending returns, those up to the last minion of a page that has more after
// it.
func (s *Store) pendingReturns(
	jid job.JID, in map[job.Minion]*entry, upTo job.Minion,
) ([]job.Return, error) {
	var out []job.Return
	for m, e := range in {
		if upTo != "" && m > upTo {
			continue
		}
		facts, err := s.factsOf(e)
		if err != nil {
			return nil, err
		}
		for _, f := range facts {
			if r, is := f.(job.Return); is && r.JID == jid && r.Minion == m {
				out = append(out, r)
			}
		}
	}
	return out, nil
}

// mergeReturns gives both, sorted by minion, by the rules of returns.
func mergeReturns(a, b []job.Return) []job.Return {
	all := slices.Concat(a, b)
	slices.SortStableFunc(all, func(a, b job.Return) int {
		return strings.Compare(string(a.Minion), string(b.Minion))
	})
	out := all[:0]
	for _, r := range all {
		if n := len(out); n > 0 && out[n-1].Minion == r.Minion {
			out[n-1], _ = job.MergeReturn(out[n-1], r)
			continue
		}
		out = append(out, r)
	}
	return out
}

// cut ends a page that pending returns made longer than asked for.
func cut(page tiers.ReturnPage, maxBytes int) tiers.ReturnPage {
	if maxBytes <= 0 {
		return page
	}
	size := 0
	for i, r := range page.Returns {
		size += r.PayloadBytes()
		if size >= maxBytes && i+1 < len(page.Returns) {
			page.Returns, page.Next = page.Returns[:i+1], r.Minion
			break
		}
	}
	return page
}

// List waits for the log to be in the store, so that no job is left out.
func (s *Store) List(ctx context.Context, f tiers.Filter) (tiers.ListPage, error) {
	if err := s.settle(ctx); err != nil {
		return tiers.ListPage{}, err
	}
	return s.under.List(ctx, f)
}

// Events waits as List does.
func (s *Store) Events(ctx context.Context, q tiers.EventQuery) (tiers.EventPage, error) {
	if err := s.settle(ctx); err != nil {
		return tiers.EventPage{}, err
	}
	return s.under.Events(ctx, q)
}

// LastFunctions waits as List does.
func (s *Store) LastFunctions(ctx context.Context, fun string) ([]job.LastFunction, error) {
	if err := s.settle(ctx); err != nil {
		return nil, err
	}
	return s.under.LastFunctions(ctx, fun)
}

// settle waits until the store has all that was acknowledged before the call.
func (s *Store) settle(ctx context.Context) error {
	seq := s.queue.head()
	patience := time.NewTimer(s.o.ListWait)
	defer patience.Stop()
	for {
		done, changed := s.queue.settled(seq)
		if done {
			return nil
		}
		select {
		case <-changed:
		case <-patience.C:
			return fmt.Errorf("%w: %d facts wait in the journal for %s; lists are answered when it has them",
				tiers.ErrUnavailable, s.queue.status().Facts, s.under.Name())
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Expire removes from the store what has passed its time.
func (s *Store) Expire(ctx context.Context, now time.Time) (int, error) {
	return s.under.Expire(ctx, now)
}

// SaveRegister goes to the store alone: a register is no fact, the next one replaces it.
func (s *Store) SaveRegister(ctx context.Context, master string, data []byte) error {
	return s.under.SaveRegister(ctx, master, data)
}

// LoadRegister reads from the store.
func (s *Store) LoadRegister(ctx context.Context, master string) ([]byte, error) {
	return s.under.LoadRegister(ctx, master)
}
