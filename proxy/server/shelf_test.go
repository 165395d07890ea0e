package server

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"saltern/job"
	"saltern/tiers"
)

// shelf is a Jobs and a Reader that keeps facts in maps, and can be told to fail, to hang and to
// panic. What the real tiers do is in real_test.go.
type shelf struct {
	mu     sync.Mutex // guards the rest
	heads  map[job.JID]job.Head
	rets   map[job.JID]map[job.Minion]job.Return
	events []job.Event
	regs   map[string][]byte
	jids   int
	filter tiers.Filter // of the last List
	query  tiers.EventQuery
	fault  any // an error that every call gives, or a panic
	cleans int

	gate chan struct{} // when not nil, a write waits for it
	in   chan struct{} // gets an element when a write begins to wait
}

func newShelf() *shelf {
	return &shelf{
		heads: make(map[job.JID]job.Head),
		rets:  make(map[job.JID]map[job.Minion]job.Return),
		regs:  make(map[string][]byte),
		in:    make(chan struct{}, 1000),
	}
}

// fail makes every call end with an error, panic with anything else, or work with nil.
func (s *shelf) fail(fault any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = fault
}

// lock begins a call.
func (s *shelf) lock() error {
	s.mu.Lock()
	switch fault := s.fault.(type) {
	case nil:
		return nil
	case error:
		return fault
	default:
		panic(fault)
	}
}

func (s *shelf) Write(ctx context.Context, facts ...job.Fact) ([]job.Outcome, error) {
	if s.gate != nil {
		s.in <- struct{}{}
		<-s.gate
	}
	defer s.mu.Unlock()
	if err := s.lock(); err != nil {
		return nil, err
	}
	outcomes := make([]job.Outcome, len(facts))
	for i, f := range facts {
		switch f := f.(type) {
		case job.Return:
			if s.heads[f.JID].NoCache != nil {
				outcomes[i] = job.Dropped
				continue
			}
			outcomes[i] = s.saveReturn(f)
		case job.Event:
			s.events = append(s.events, f)
		default:
			h := s.heads[f.Job()]
			h.JID = f.Job()
			s.heads[f.Job()] = h.With(f)
		}
	}
	return outcomes, nil
}

func (s *shelf) saveReturn(r job.Return) job.Outcome {
	if _, known := s.heads[r.JID]; !known {
		s.heads[r.JID] = job.Head{JID: r.JID}
	}
	if s.rets[r.JID] == nil {
		s.rets[r.JID] = make(map[job.Minion]job.Return)
	}
	old, there := s.rets[r.JID][r.Minion]
	switch {
	case !there:
		s.rets[r.JID][r.Minion] = r
		return job.Stored
	case job.SameReturn(old, r):
		return job.Repeat
	default:
		return job.Differs
	}
}

func (s *shelf) PrepJID(context.Context) job.JID {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.jids++
	return job.NewJID(time.Date(2026, 12, 1, 0, 0, 0, s.jids*1000, time.UTC))
}

func (s *shelf) Head(_ context.Context, jid job.JID) (job.Head, error) {
	defer s.mu.Unlock()
	if err := s.lock(); err != nil {
		return job.Head{}, err
	}
	h, there := s.heads[jid]
	if !there {
		return h, tiers.ErrNotFound
	}
	return h, nil
}

func (s *shelf) Returns(_ context.Context, jid job.JID, q tiers.ReturnQuery) (tiers.ReturnPage, error) {
	defer s.mu.Unlock()
	if err := s.lock(); err != nil {
		return tiers.ReturnPage{}, err
	}
	if _, there := s.heads[jid]; !there {
		return tiers.ReturnPage{}, tiers.ErrNotFound
	}
	var page tiers.ReturnPage
	size := 0
	for _, id := range slices.Sorted(maps.Keys(s.rets[jid])) {
		r := s.rets[jid][id]
		if id <= q.After {
			continue
		}
		if size += len(r.Ret); size > q.MaxBytes && len(page.Returns) > 0 {
			page.Next = page.Returns[len(page.Returns)-1].Minion
			break
		}
		page.Returns = append(page.Returns, r)
	}
	return page, nil
}

// List gives one job a page, whatever the limit, so that callers have to ask again.
func (s *shelf) List(_ context.Context, f tiers.Filter) (tiers.ListPage, error) {
	defer s.mu.Unlock()
	if err := s.lock(); err != nil {
		return tiers.ListPage{}, err
	}
	s.filter = f
	jids := slices.Sorted(maps.Keys(s.heads))
	slices.Reverse(jids)
	at, _ := strconv.Atoi(f.Cursor)
	var page tiers.ListPage
	if at < len(jids) {
		page.Jobs = []tiers.Listed{s.listed(jids[at], f.Loads)}
	}
	if at+1 < len(jids) {
		page.Next = strconv.Itoa(at + 1)
	}
	return page, nil
}

func (s *shelf) listed(jid job.JID, loads bool) tiers.Listed {
	h := s.heads[jid]
	at, _ := jid.Time()
	l := tiers.Listed{Summary: job.Summary{
		JID: jid, Time: at, Expected: len(h.Minions), Returned: len(s.rets[jid]), Keep: job.KeepUnset,
		Missing: max(0, len(h.Minions)-len(s.rets[jid])), Last: at,
	}}
	for _, r := range s.rets[jid] {
		if r.Failed {
			l.Failed++
		}
	}
	if h.Load != nil {
		l.Fun, l.Target, l.TargetType, l.User = h.Load.Fun, h.Load.Target, h.Load.TargetType, h.Load.User
	}
	if loads {
		l.Head = &h
	}
	return l
}

func (s *shelf) Events(_ context.Context, q tiers.EventQuery) (tiers.EventPage, error) {
	defer s.mu.Unlock()
	if err := s.lock(); err != nil {
		return tiers.EventPage{}, err
	}
	s.query = q
	all := slices.Clone(s.events)
	slices.SortFunc(all, func(a, b job.Event) int { return bytes.Compare(b.ID[:], a.ID[:]) })
	at, _ := strconv.Atoi(q.Cursor)
	page := tiers.EventPage{Events: all[at:min(len(all), at+q.Limit)]}
	if at+q.Limit < len(all) {
		page.Next = strconv.Itoa(at + q.Limit)
	}
	return page, nil
}

func (s *shelf) LastFunctions(_ context.Context, fun string) ([]job.LastFunction, error) {
	defer s.mu.Unlock()
	if err := s.lock(); err != nil {
		return nil, err
	}
	last := make(map[job.Minion]job.LastFunction)
	for jid, rets := range s.rets {
		at, _ := jid.Time()
		for id, r := range rets {
			l := job.LastFunction{Minion: id, Fun: r.Fun, JID: jid, JobTime: at, Failed: r.Failed}
			if old, there := last[id]; there {
				l = job.MergeLastFunction(old, l)
			}
			last[id] = l
		}
	}
	all := slices.SortedFunc(maps.Values(last), func(a, b job.LastFunction) int { return cmp.Compare(a.Minion, b.Minion) })
	return slices.DeleteFunc(all, func(l job.LastFunction) bool { return fun != "" && l.Fun != fun }), nil
}

func (s *shelf) Clean() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cleans++
}

func (s *shelf) SaveRegister(_ context.Context, master string, data []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.regs[master] = data
	return nil
}

func (s *shelf) LoadRegister(_ context.Context, master string) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	data, there := s.regs[master]
	if !there {
		return nil, tiers.ErrNotFound
	}
	return data, nil
}

// save writes facts that have to be taken.
func save(t *testing.T, to Jobs, facts ...job.Fact) {
	t.Helper()
	if _, err := to.Write(t.Context(), facts...); err != nil {
		t.Fatal(err)
	}
}

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }
