package embedded

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"saltern/job"
	"saltern/tiers"
)

// Head gives all that is known of a job but its returns.
func (s *Store) Head(ctx context.Context, jid job.JID) (job.Head, error) {
	if err := s.ready(ctx); err != nil {
		return job.Head{}, err
	}
	// The place and the rows are read as of one moment: a job moves when its retention changes.
	snap := s.db.NewSnapshot()
	defer snap.Close()
	p, err := s.mustPlace(snap, jid)
	if err != nil {
		return job.Head{}, err
	}
	return s.head(ctx, snap, p, jid)
}

func (s *Store) mustPlace(r pebble.Reader, jid job.JID) (place, error) {
	p, found, err := s.place(r, jid)
	if err == nil && !found {
		err = fmt.Errorf("job %q: %w", jid, tiers.ErrNotFound)
	}
	return p, err
}

func (s *Store) head(ctx context.Context, r pebble.Reader, p place, jid job.JID) (job.Head, error) {
	h := job.Head{JID: jid}
	prefix := dataPrefix(p, jid)
	err := s.scanRange(ctx, r, prefix, dataKey(prefix, kindReturn), func(key, value []byte) error {
		kind := key[len(prefix)]
		switch kind {
		case kindEndTime:
			if f, ok := decodeFact[job.EndTime](s, kind, jid, value); ok {
				h.EndTime = &f
			}
		case kindLoad:
			if f, ok := decodeFact[job.Load](s, kind, jid, bytes.Clone(value)); ok {
				h.Load = &f
			}
		case kindNoCache:
			if f, ok := decodeFact[job.NoCache](s, kind, jid, value); ok {
				h.NoCache = &f
			}
		case kindExpected:
			h.Minions = append(h.Minions, job.Minion(key[len(prefix)+1:]))
		}
		return nil
	})
	return h, err
}

// Returns gives returns of a job in the order of their minions, a page at a time.
func (s *Store) Returns(
	ctx context.Context, jid job.JID, q tiers.ReturnQuery,
) (tiers.ReturnPage, error) {
	if err := s.ready(ctx); err != nil {
		return tiers.ReturnPage{}, err
	}
	snap := s.db.NewSnapshot()
	defer snap.Close()
	p, err := s.mustPlace(snap, jid)
	if err != nil {
		return tiers.ReturnPage{}, err
	}
	page := returnPage{q: q}
	if q.Only != nil {
		err = s.returnsOf(ctx, snap, dataPrefix(p, jid), jid, &page)
	} else {
		err = s.returnsAfter(ctx, snap, dataPrefix(p, jid), jid, &page)
	}
	return page.ReturnPage, err
}

func (s *Store) returnsAfter(
	ctx context.Context, r pebble.Reader, prefix []byte, jid job.JID, page *returnPage,
) error {
	from := minionDataKey(prefix, kindReturn, page.q.After)
	if page.q.After != "" {
		from = append(from, 0)
	}
	end := dataKey(prefix, kindReturn+1)
	return s.scanRange(ctx, r, from, end, func(_, value []byte) error {
		if page.full() {
			return errStop
		}
		if f, ok := decodeFact[job.Return](s, kindReturn, jid, bytes.Clone(value)); ok {
			page.add(f)
		}
		return nil
	})
}

func (s *Store) returnsOf(
	ctx context.Context, r pebble.Reader, prefix []byte, jid job.JID, page *returnPage,
) error {
	for _, m := range job.UnionMinions(page.q.Only) {
		if m <= page.q.After && page.q.After != "" {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		key := minionDataKey(prefix, kindReturn, m)
		f, found, _, err := getFact[job.Return](s, r, key, kindReturn, jid)
		if err != nil {
			return err
		}
		if !found {
			continue
		}
		if page.full() {
			return nil
		}
		page.add(f)
	}
	return nil
}

// returnPage is a page that is being filled.
type returnPage struct {
	tiers.ReturnPage
	q     tiers.ReturnQuery
	bytes int
}

// full says whether there is no room for another return, which there is.
func (p *returnPage) full() bool {
	if len(p.Returns) == 0 || p.q.MaxBytes <= 0 || p.bytes < p.q.MaxBytes {
		return false
	}
	p.Next = p.Returns[len(p.Returns)-1].Minion
	return true
}

func (p *returnPage) add(r job.Return) {
	if p.q.NoPayload {
		r.Ret, r.Rest, r.Times = nil, nil, nil
	}
	p.bytes += r.PayloadBytes()
	p.Returns = append(p.Returns, r)
}

// LastFunctions gives the minions that have a return in the store, sorted, each with its last
// function.
func (s *Store) LastFunctions(ctx context.Context, fun string) ([]job.LastFunction, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	snap := s.db.NewSnapshot()
	defer snap.Close()
	if fun != "" {
		return s.minionsOf(ctx, snap, fun)
	}
	var all []job.LastFunction
	err := s.scan(ctx, snap, []byte{tabMinion}, func(key, value []byte) error {
		l, err := decodeLast(job.Minion(key[1:]), value)
		if err != nil {
			s.dropCorrupt(tabMinion, l.JID, err)
			return nil
		}
		all = append(all, l)
		return nil
	})
	return all, err
}

func (s *Store) minionsOf(
	ctx context.Context, r pebble.Reader, fun string,
) ([]job.LastFunction, error) {
	var all []job.LastFunction
	prefix := functionPrefix(fun)
	err := s.scan(ctx, r, prefix, func(key, _ []byte) error {
		l, found, err := s.last(r, job.Minion(key[len(prefix):]))
		if found && l.Fun == fun {
			all = append(all, l)
		}
		return err
	})
	return slices.Clip(all), err
}

// last gives the last function of a minion as stored, and whether there is one.
func (s *Store) last(r pebble.Reader, m job.Minion) (job.LastFunction, bool, error) {
	value, found, err := s.get(r, minionKey(m))
	if err != nil || !found {
		return job.LastFunction{}, false, err
	}
	l, err := decodeLast(m, value)
	if err != nil {
		s.dropCorrupt(tabMinion, "", err)
		return job.LastFunction{}, false, nil
	}
	return l, true, nil
}
