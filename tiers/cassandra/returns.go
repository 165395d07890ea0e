package cassandra

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"

	"saltern/job"
	"saltern/tiers"
)

// Returns gives returns of a job in the order of their minions, a page at a time.
func (s *Store) Returns(ctx context.Context, jid job.JID, q tiers.ReturnQuery) (tiers.ReturnPage, error) {
	r, err := s.openReturns(ctx, jid, q)
	if err != nil {
		return tiers.ReturnPage{}, err
	}
	defer r.close()
	page, err := r.page(ctx)
	if err != nil {
		return tiers.ReturnPage{}, err
	}
	if len(page.Returns) == 0 && !r.exists {
		// Nothing of it is in returns: there may be a job without any.
		rows, err := s.headRows(ctx, jid)
		if err == nil && len(rows) == 0 {
			err = notFound(jid)
		}
		return page, err
	}
	return page, nil
}

// settle gives the one of tied returns that stays by the rule of job.MergeReturn. Where a payload is not at hand, in
// chunks or not asked for, the least digest stays.
func (r *reading) settle(row storedReturn) *storedReturn {
	for _, other := range row.tied {
		if other.digest == row.digest {
			continue
		}
		stays := other.digest < row.digest
		if !r.q.NoPayload && !isManifest(row.body) && !isManifest(other.body) {
			a, _, okA := r.decode(&row)
			b, _, okB := r.decode(&other)
			winner, _ := job.MergeReturn(a, b)
			stays = okB && (!okA || digestOf(winner) == other.digest)
		}
		if stays {
			row = other
		}
	}
	return &row
}

// page fills a page.
func (r *reading) page(ctx context.Context) (tiers.ReturnPage, error) {
	var page tiers.ReturnPage
	var large []largeBody
	bytes := 0
	for {
		row, err := r.next(ctx)
		if err != nil {
			return page, err
		}
		if row == nil {
			break
		}
		f, size, ok := r.decode(row)
		if !ok {
			continue
		}
		if n := len(page.Returns); n > 0 && r.q.MaxBytes > 0 && bytes >= r.q.MaxBytes {
			page.Next = page.Returns[n-1].Minion
			break
		}
		if isManifest(row.body) {
			large = append(large, largeBody{len(page.Returns), returnPlace(f, row.digest), row.body})
		}
		page.Returns = append(page.Returns, f)
		bytes += size
	}
	return r.withBodies(ctx, page, large)
}

// decode gives a return and the size of its payload. A payload in chunks is not there yet.
func (r *reading) decode(row *storedReturn) (f job.Return, size int, ok bool) {
	fact, err := job.Decode(row.head)
	f, isReturn := fact.(job.Return)
	if err == nil && !isReturn {
		err = job.ErrCorrupt
	}
	if r.q.NoPayload {
		f.Ret, f.Rest, f.Times = nil, nil, nil
	} else if err == nil {
		if isManifest(row.body) {
			var m manifest
			m, err = decodeManifest(row.body)
			size = int(m.payload)
		} else {
			err = setBody(&f, row.body)
			size = f.PayloadBytes()
		}
	}
	if err != nil {
		r.s.dropCorrupt("returns", r.jid, err)
		return f, 0, false
	}
	return f, size, true
}

func setBody(f *job.Return, value []byte) error {
	fact, err := job.Decode(value)
	if err != nil {
		return err
	}
	body, ok := fact.(job.Return)
	if !ok {
		return job.ErrCorrupt
	}
	f.Ret, f.Rest, f.Times = body.Ret, body.Rest, body.Times
	return nil
}

// largeBody is a payload in chunks, and which return of the page it is of.
type largeBody struct {
	index int
	place place
	cell  []byte
}

// withBodies fetches the payloads that are in chunks. A return whose payload cannot be read is missing.
func (r *reading) withBodies(ctx context.Context, page tiers.ReturnPage, large []largeBody) (tiers.ReturnPage, error) {
	if len(large) == 0 {
		return page, nil
	}
	corrupt := make([]bool, len(page.Returns))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(bodiesAtOnce)
	for _, b := range large {
		g.Go(func() error {
			value, err := r.s.unpack(gctx, b.place, b.cell)
			if err == nil {
				err = setBody(&page.Returns[b.index], value)
			}
			if errors.Is(err, job.ErrCorrupt) {
				corrupt[b.index] = true
				r.s.dropCorrupt("chunks", r.jid, err)
				return nil
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return tiers.ReturnPage{}, err
	}
	kept := page.Returns[:0]
	for i, f := range page.Returns {
		if !corrupt[i] {
			kept = append(kept, f)
		}
	}
	page.Returns = kept
	return page, nil
}
