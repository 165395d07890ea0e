package proxytest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"saltern/job"
	"saltern/tiers"
)

// Store is a durable tier in a map. The zero value is an empty one.
type Store struct {
	hooks

	mu     sync.Mutex // guards the rest
	jobs   map[job.JID]*jobData
	events []job.Event
	regs   map[string][]byte
	closed bool
}

var _ tiers.Store = (*Store)(nil)

type jobData struct {
	head    job.Head
	returns map[job.Minion]job.Return
}

// page gives a page of the job's returns.
func (d *jobData) page(q tiers.ReturnQuery) tiers.ReturnPage {
	var page tiers.ReturnPage
	bytes := 0
	for _, m := range slices.Sorted(maps.Keys(d.returns)) {
		if m <= q.After && q.After != "" || q.Only != nil && !slices.Contains(q.Only, m) {
			continue
		}
		if n := len(page.Returns); n > 0 && q.MaxBytes > 0 && bytes >= q.MaxBytes {
			page.Next = page.Returns[n-1].Minion
			break
		}
		r := d.returns[m]
		bytes += r.PayloadBytes()
		page.Returns = append(page.Returns, r)
	}
	return page
}

// merge merges a fact of the job.
func (d *jobData) merge(f job.Fact) job.Outcome {
	r, isReturn := f.(job.Return)
	if !isReturn {
		d.head = d.head.With(f)
		return job.Stored
	}
	if d.head.NoCache != nil {
		return job.Dropped
	}
	have, there := d.returns[r.Minion]
	if !there {
		d.returns[r.Minion] = r
		return job.Stored
	}
	winner, differ := job.MergeReturn(have, r)
	d.returns[r.Minion] = winner
	switch {
	case !differ:
		return job.Repeat
	case winner.Version == r.Version && r.Version != have.Version:
		return job.Stored
	default:
		return job.Differs
	}
}

// Name is "store".
func (s *Store) Name() string { return "store" }

// Close ends the store: calls panic then, as they do in a real one.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}

// Closed says whether the store was closed.
func (s *Store) Closed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

func (s *Store) open() {
	if s.closed {
		panic("proxytest: call of a closed store")
	}
}

// Head gives the head of a job.
func (s *Store) Head(ctx context.Context, jid job.JID) (job.Head, error) {
	return hooked(ctx, &s.hooks, "head", jid, func() (job.Head, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.open()
		d := s.jobs[jid]
		if d == nil {
			return job.Head{}, fmt.Errorf("job %q: %w", jid, tiers.ErrNotFound)
		}
		return d.head, nil
	})
}

// Returns gives returns of a job.
func (s *Store) Returns(ctx context.Context, jid job.JID, q tiers.ReturnQuery) (tiers.ReturnPage, error) {
	return hooked(ctx, &s.hooks, "returns", jid, func() (tiers.ReturnPage, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.open()
		d := s.jobs[jid]
		if d == nil {
			return tiers.ReturnPage{}, fmt.Errorf("job %q: %w", jid, tiers.ErrNotFound)
		}
		return d.page(q), nil
	})
}

// Merge merges facts.
func (s *Store) Merge(ctx context.Context, facts []job.Fact) ([]job.Outcome, error) {
	return hooked(ctx, &s.hooks, "merge", facts[0].Job(), func() ([]job.Outcome, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.open()
		outcomes := make([]job.Outcome, len(facts))
		for i, f := range facts {
			outcomes[i] = s.merge(f)
		}
		return outcomes, nil
	})
}

func (s *Store) merge(f job.Fact) job.Outcome {
	if e, isEvent := f.(job.Event); isEvent {
		s.events = append(s.events, e)
		return job.Stored
	}
	d, there := s.jobs[f.Job()]
	if !there {
		if s.jobs == nil {
			s.jobs = make(map[job.JID]*jobData)
		}
		d = &jobData{head: job.Head{JID: f.Job()}, returns: make(map[job.Minion]job.Return)}
		s.jobs[f.Job()] = d
	}
	outcome := d.merge(f)
	if !there && outcome == job.Stored {
		return job.Created
	}
	return outcome
}

// List gives all jobs in one page. It knows no filter.
func (s *Store) List(ctx context.Context, _ tiers.Filter) (tiers.ListPage, error) {
	return hooked(ctx, &s.hooks, "list", "", func() (tiers.ListPage, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.open()
		var page tiers.ListPage
		for _, jid := range slices.Backward(slices.Sorted(maps.Keys(s.jobs))) {
			page.Jobs = append(page.Jobs, tiers.Listed{Summary: job.Summary{JID: jid}})
		}
		return page, nil
	})
}

// Events gives all events in one page.
func (s *Store) Events(ctx context.Context, _ tiers.EventQuery) (tiers.EventPage, error) {
	return hooked(ctx, &s.hooks, "events", "", func() (tiers.EventPage, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.open()
		return tiers.EventPage{Events: slices.Clone(s.events)}, nil
	})
}

// LastFunctions gives the minions that have a return, with the function alone.
func (s *Store) LastFunctions(ctx context.Context, fun string) ([]job.LastFunction, error) {
	return hooked(ctx, &s.hooks, "last functions", "", func() ([]job.LastFunction, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.open()
		var all []job.LastFunction
		for _, d := range s.jobs {
			for m, r := range d.returns {
				if fun == "" || r.Fun == fun {
					all = append(all, job.LastFunction{Minion: m, Fun: r.Fun})
				}
			}
		}
		slices.SortFunc(all, func(a, b job.LastFunction) int { return cmp.Compare(a.Minion, b.Minion) })
		return all, nil
	})
}

// Expire removes the jobs whose load says that their time has passed.
func (s *Store) Expire(ctx context.Context, now time.Time) (int, error) {
	return hooked(ctx, &s.hooks, "expire", "", func() (int, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.open()
		before := len(s.jobs)
		maps.DeleteFunc(s.jobs, func(jid job.JID, d *jobData) bool {
			l := d.head.Load
			return l != nil && l.Keep > 0 &&
				!jid.PlausibleTime(l.Version.Time()).Add(time.Duration(l.Keep)*time.Second).After(now)
		})
		return before - len(s.jobs), nil
	})
}

// SaveRegister keeps a register.
func (s *Store) SaveRegister(ctx context.Context, master string, data []byte) error {
	_, err := hooked(ctx, &s.hooks, "save register", "", func() (struct{}, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.open()
		if s.regs == nil {
			s.regs = make(map[string][]byte)
		}
		s.regs[master] = data
		return struct{}{}, nil
	})
	return err
}

// LoadRegister gives a register.
func (s *Store) LoadRegister(ctx context.Context, master string) ([]byte, error) {
	return hooked(ctx, &s.hooks, "load register", "", func() ([]byte, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.open()
		data, there := s.regs[master]
		if !there {
			return nil, tiers.ErrNotFound
		}
		return data, nil
	})
}
