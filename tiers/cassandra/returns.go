package cassandra

import (
	"context"
	"errors"
	"slices"

	"github.com/apache/cassandra-gocql-driver/v2"
	"golang.org/x/sync/errgroup"

	"saltern/job"
	"saltern/tiers"
)

// Pages of rows asked of one bucket at a time. A row has 32 KiB at most; with all buckets open 31 of the smaller ones
// are in memory.
const (
	pageRows      = 500
	spillPageRows = 64
	// bodiesAtOnce is how many payloads that are in chunks are fetched at once.
	bodiesAtOnce = 8
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

// storedReturn is a row of returns.
type storedReturn struct {
	minion  job.Minion
	version job.Version
	digest  int64
	head    []byte
	body    []byte
	// tied are other returns of that minion with that version: two nodes then gave out one version.
	tied []storedReturn
}

// reading reads the returns of a job over all of its buckets.
type reading struct {
	s   *Store
	jid job.JID
	q   tiers.ReturnQuery
	// exists says that there is something of the job in returns.
	exists bool
	// spilled says that there are buckets beside the first.
	spilled bool
	// marked is the version of the job's nocache mark; returns that came later are not kept. It is set
	// with noCache.
	noCache bool
	marked  job.Version
	sources []*source
}

// source is one bucket, read row by row in the order of minions and versions.
type source struct {
	iter *gocql.Iter
	row  storedReturn
	ok   bool
	// ahead is the first row of the next minion, where there is one.
	ahead   storedReturn
	isAhead bool
}

func (r *reading) close() {
	for _, src := range r.sources {
		_ = src.iter.Close() // its error was taken when its rows ended
	}
}

// openReturns opens the first bucket, and, where that says so, all others.
func (s *Store) openReturns(ctx context.Context, jid job.JID, q tiers.ReturnQuery) (*reading, error) {
	session, err := s.session()
	if err != nil {
		return nil, err
	}
	if q.Only != nil {
		after := func(m job.Minion) bool { return q.After == "" || m > q.After }
		q.Only = append([]job.Minion{}, filter(job.UnionMinions(q.Only), after)...) // not nil: none is not all
	}
	r := &reading{s: s, jid: jid, q: q}
	if err := r.open(ctx, session, 0, pageRows); err != nil {
		return nil, err
	}
	if !r.exists && (q.After != "" || q.Only != nil) {
		// The static columns come only with a row.
		if err := r.readStatic(ctx, session); err != nil {
			r.close()
			return nil, err
		}
	}
	if r.noCache {
		if err := r.readMark(ctx); err != nil {
			r.close()
			return nil, err
		}
	}
	if !r.spilled {
		return r, nil
	}
	r.exists = true
	if err := r.openSpilled(ctx, session); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

// openSpilled opens the buckets beside the first, several at a time, as opening reads a first page.
func (r *reading) openSpilled(ctx context.Context, session *gocql.Session) error {
	opened := make([]*reading, buckets-1)
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for i := range opened {
		one := &reading{s: r.s, jid: r.jid, q: r.q}
		opened[i] = one
		g.Go(func() error {
			// The context of an iterator has to live as long as it.
			if err := gctx.Err(); err != nil {
				return err
			}
			return one.open(ctx, session, int16(i+1), spillPageRows)
		})
	}
	err := g.Wait()
	for _, one := range opened {
		r.sources = append(r.sources, one.sources...)
	}
	return err
}

// open opens one bucket.
func (r *reading) open(ctx context.Context, session *gocql.Session, bucket int16, rows int) error {
	only := r.q.Only
	if only != nil && bucket > 0 {
		only = filter(only, func(m job.Minion) bool { return bucketOf(m) == bucket })
	}
	if only != nil && len(only) == 0 {
		return nil
	}
	src := &source{iter: r.query(session, bucket, only).PageSize(rows).IterContext(ctx)}
	r.sources = append(r.sources, src)
	return r.advance(ctx, src)
}

func (r *reading) query(session *gocql.Session, bucket int16, only []job.Minion) *gocql.Query {
	pick := func(full, heads string) string {
		if r.q.NoPayload {
			return heads
		}
		return full
	}
	var q *gocql.Query
	switch jid := string(r.jid); {
	case only != nil:
		ids := make([]string, len(only))
		for i, m := range only {
			ids[i] = string(m)
		}
		q = session.Query(pick(selectReturnsOnly, selectHeadersOnly), jid, bucket, ids)
	case r.q.After != "":
		q = session.Query(pick(selectReturnsAfter, selectHeadersAfter), jid, bucket, string(r.q.After))
	default:
		q = session.Query(pick(selectReturns, selectHeaders), jid, bucket)
	}
	return r.s.hedged(q.Consistency(r.s.reads))
}

func filter(ids []job.Minion, keep func(job.Minion) bool) []job.Minion {
	return slices.DeleteFunc(slices.Clone(ids), func(m job.Minion) bool { return !keep(m) })
}

// advance reads the rows of the next minion of a source. They come in the order of their versions: the first stays.
func (r *reading) advance(ctx context.Context, src *source) error {
	src.row, src.ok, src.isAhead = src.ahead, src.isAhead, false
	for {
		row, ok, err := r.scan(ctx, src)
		if !ok || err != nil {
			return err
		}
		switch {
		case row.minion == "": // the static columns alone
		case !src.ok:
			src.row, src.ok = row, true
		case row.minion != src.row.minion:
			src.ahead, src.isAhead = row, true
			return nil
		case row.version == src.row.version:
			src.row.tied = append(src.row.tied, row)
		}
	}
}

func (r *reading) scan(ctx context.Context, src *source) (row storedReturn, ok bool, err error) {
	var minion string
	var version int64
	var spilled, noCache bool
	into := []any{&spilled, &noCache, &minion, &version, &row.digest, &row.head, &row.body}
	if r.q.NoPayload {
		into = into[:6]
	}
	if !src.iter.Scan(into...) {
		return row, false, r.s.fail(ctx, "read of returns", src.iter.Close())
	}
	r.exists, r.spilled, r.noCache = true, r.spilled || spilled, r.noCache || noCache
	row.minion, row.version = job.Minion(minion), job.Version(version)
	return row, true, nil
}

func (r *reading) readStatic(ctx context.Context, session *gocql.Session) error {
	err := session.Query(selectReturnsStatic, string(r.jid), int16(0)).Consistency(r.s.reads).ScanContext(ctx, &r.spilled, &r.noCache)
	if errors.Is(err, gocql.ErrNotFound) {
		return nil
	}
	r.exists = err == nil
	return r.s.fail(ctx, "read of returns", err)
}

// readMark reads since when the job keeps no returns.
func (r *reading) readMark(ctx context.Context) error {
	rows, err := r.s.headRows(ctx, r.jid, headNoCache)
	if err != nil {
		return err
	}
	h, err := r.s.head(ctx, r.jid, rows, false)
	if err == nil && h.NoCache != nil {
		r.marked = h.NoCache.Version
	} else {
		r.noCache = false
	}
	return err
}

// next gives the next row over all sources, nil at the end.
func (r *reading) next(ctx context.Context) (*storedReturn, error) {
	for {
		var first *source
		for _, src := range r.sources {
			if src.ok && (first == nil || src.row.minion < first.row.minion ||
				src.row.minion == first.row.minion && src.row.version < first.row.version) {
				first = src
			}
		}
		if first == nil {
			return nil, nil
		}
		row := first.row
		for _, src := range r.sources {
			if !src.ok || src.row.minion != row.minion {
				continue
			}
			if src != first && src.row.version == row.version {
				row.tied = append(append(row.tied, src.row), src.row.tied...)
			}
			if err := r.advance(ctx, src); err != nil {
				return nil, err
			}
		}
		if !r.noCache || row.version < r.marked {
			return r.settle(row), nil
		}
	}
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
			size = len(f.Ret) + len(f.Rest) + len(f.Times)
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

// hedged lets a read be asked of a second node when the first is slow.
func (s *Store) hedged(q *gocql.Query) *gocql.Query {
	if s.o.HedgeAfter <= 0 {
		return q
	}
	return q.SetSpeculativeExecutionPolicy(&gocql.SimpleSpeculativeExecution{NumAttempts: 1, TimeoutDelay: s.o.HedgeAfter})
}
