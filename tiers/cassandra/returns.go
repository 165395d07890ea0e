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

const (
	selectFirst  = `SELECT spilled, nocache, minion, version, head, body FROM returns WHERE jid = ? AND bucket = ?`
	selectAfter  = selectFirst + ` AND minion > ?`
	selectOnly   = selectFirst + ` AND minion IN ?`
	selectHeads  = `SELECT spilled, nocache, minion, version, head FROM returns WHERE jid = ? AND bucket = ?`
	headsAfter   = selectHeads + ` AND minion > ?`
	headsOnly    = selectHeads + ` AND minion IN ?`
	selectStatic = `SELECT spilled, nocache FROM returns WHERE jid = ? AND bucket = ? LIMIT 1`
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
		rows, err := s.headRows(ctx, jid, "")
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
	head    []byte
	body    []byte
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
		q.Only = slices.DeleteFunc(job.UnionMinions(q.Only), func(m job.Minion) bool { return q.After != "" && m <= q.After })
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
		only = slices.DeleteFunc(slices.Clone(only), func(m job.Minion) bool { return bucketOf(m) != bucket })
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
		q = session.Query(pick(selectOnly, headsOnly), jid, bucket, ids)
	case r.q.After != "":
		q = session.Query(pick(selectAfter, headsAfter), jid, bucket, string(r.q.After))
	default:
		q = session.Query(pick(selectFirst, selectHeads), jid, bucket)
	}
	return r.s.hedged(q.Consistency(r.s.reads))
}

// advance reads the next row of a source that is of another minion than the one before: rows of one minion come in the
// order of their versions, and the first stays.
func (r *reading) advance(ctx context.Context, src *source) error {
	before, had := src.row.minion, src.ok
	for {
		var row storedReturn // the driver reuses the bytes that it is given
		var minion string
		var version int64
		var spilled, noCache bool
		into := []any{&spilled, &noCache, &minion, &version, &row.head, &row.body}
		if r.q.NoPayload {
			into = into[:5]
		}
		if !src.iter.Scan(into...) {
			src.ok = false
			return r.s.fail(ctx, "read of returns", src.iter.Close())
		}
		r.exists, r.spilled, r.noCache = true, r.spilled || spilled, r.noCache || noCache
		row.minion, row.version = job.Minion(minion), job.Version(version)
		if row.minion == "" || had && row.minion == before { // "": the static columns alone
			continue
		}
		src.row, src.ok = row, true
		return nil
	}
}

func (r *reading) readStatic(ctx context.Context, session *gocql.Session) error {
	err := session.Query(selectStatic, string(r.jid), int16(0)).Consistency(r.s.reads).ScanContext(ctx, &r.spilled, &r.noCache)
	if errors.Is(err, gocql.ErrNotFound) {
		return nil
	}
	r.exists = err == nil
	return r.s.fail(ctx, "read of returns", err)
}

// readMark reads since when the job keeps no returns.
func (r *reading) readMark(ctx context.Context) error {
	rows, err := r.s.headRows(ctx, r.jid, "kind = 4")
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
			if src.ok && src.row.minion == row.minion {
				if err := r.advance(ctx, src); err != nil {
					return nil, err
				}
			}
		}
		if !r.noCache || row.version < r.marked {
			return &row, nil
		}
	}
}

// page fills a page.
func (r *reading) page(ctx context.Context) (tiers.ReturnPage, error) {
	var page tiers.ReturnPage
	var bodies []int // returns whose payload is in chunks
	var cells [][]byte
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
			bodies, cells = append(bodies, len(page.Returns)), append(cells, row.body)
		}
		page.Returns = append(page.Returns, f)
		bytes += size
	}
	return r.withBodies(ctx, page, bodies, cells)
}

// decode gives a return and the size of its payload. A payload in chunks is not there yet.
func (r *reading) decode(row *storedReturn) (f job.Return, size int, ok bool) {
	fact, err := job.Decode(row.head)
	f, isReturn := fact.(job.Return)
	if err == nil && !isReturn {
		err = job.ErrCorrupt
	}
	if err == nil && !r.q.NoPayload {
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

// withBodies fetches the payloads that are in chunks. A return whose payload cannot be read is missing.
func (r *reading) withBodies(ctx context.Context, page tiers.ReturnPage, which []int, cells [][]byte) (tiers.ReturnPage, error) {
	if len(which) == 0 {
		return page, nil
	}
	corrupt := make([]bool, len(page.Returns))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(bodiesAtOnce)
	for k, i := range which {
		g.Go(func() error {
			f := &page.Returns[i]
			value, err := r.s.unpack(gctx, place{"job/" + string(r.jid), "return/" + string(f.Minion), f.Version}, cells[k])
			if err == nil {
				err = setBody(f, value)
			}
			if errors.Is(err, job.ErrCorrupt) {
				corrupt[i] = true
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
