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

// Rows asked for at a time, of a job with one bucket and of each bucket of a job with several. A row has 32 KiB at most,
// and mostly one.
const (
	pageRows   = 500
	bucketPage = 64
	// bodiesAtOnce is how many payloads that are in chunks are fetched at once, bucketsAtOnce how many buckets are opened.
	bodiesAtOnce  = 8
	bucketsAtOnce = 8
)

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
	s       *Store
	session *gocql.Session
	jid     job.JID
	q       tiers.ReturnQuery
	sources []*source
	// exists says that there is something of the job in returns.
	exists bool
	marks
}

// marks are what the first bucket says of the job.
type marks struct {
	// last is the number of the last bucket.
	last int32
	// noCache is the version from which on no returns are kept; 0 for none.
	noCache job.Version
}

func (m *marks) add(version int64) {
	if version >= 0 {
		m.last = max(m.last, int32(version))
		return
	}
	if v := job.Version(-version); m.noCache == 0 || v < m.noCache {
		m.noCache = v
	}
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
	r := &reading{s: s, session: session, jid: jid, q: q}
	if err := r.openAll(ctx); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

func (r *reading) openAll(ctx context.Context) error {
	var g errgroup.Group
	var m marks
	if r.q.Only == nil && r.q.After != "" {
		// The marks are in front of where the reading begins.
		g.Go(func() (err error) {
			m, err = r.readMarks(ctx)
			return err
		})
	}
	first, err := r.open(ctx, 0, pageRows)
	r.sources = append(r.sources, first)
	if err = errors.Join(err, g.Wait()); err != nil {
		return err
	}
	r.marks.last = max(r.marks.last, m.last)
	if m.noCache > 0 {
		r.marks.noCache = m.noCache
	}
	// Several at a time, as opening reads a first page. They have no marks.
	others := make([]*source, r.marks.last)
	g.SetLimit(bucketsAtOnce)
	for i := range others {
		g.Go(func() (err error) {
			others[i], err = r.open(ctx, int32(i+1), bucketPage)
			return err
		})
	}
	err = g.Wait()
	r.sources = append(r.sources, others...)
	return err
}

// open opens one bucket, at its first row.
func (r *reading) open(ctx context.Context, bucket int32, rows int) (*source, error) {
	src := &source{iter: r.query(bucket).PageSize(rows).IterContext(ctx)}
	return src, r.advance(ctx, src)
}

func (r *reading) query(bucket int32) *gocql.Query {
	pick := func(full, headers string) string {
		if r.q.NoPayload {
			return headers
		}
		return full
	}
	var q *gocql.Query
	switch jid := string(r.jid); {
	case r.q.Only != nil:
		ids := []string{""} // the marks
		for _, m := range r.q.Only {
			ids = append(ids, string(m))
		}
		q = r.session.Query(pick(selectReturnsOnly, selectHeadersOnly), jid, bucket, ids)
	case r.q.After != "":
		q = r.session.Query(pick(selectReturnsAfter, selectHeadersAfter), jid, bucket, string(r.q.After))
	default:
		q = r.session.Query(pick(selectReturns, selectHeaders), jid, bucket)
	}
	return q.Consistency(r.s.reads)
}

func (r *reading) readMarks(ctx context.Context) (m marks, err error) {
	iter := r.session.Query(selectHeadersOnly, string(r.jid), int32(0), []string{""}).Consistency(r.s.reads).IterContext(ctx)
	var minion string
	var version, digest int64
	var head []byte
	for iter.Scan(&minion, &version, &digest, &head) {
		m.add(version)
	}
	return m, r.s.fail(ctx, "read of returns", iter.Close())
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
		case row.minion == "":
			// Only the first bucket has marks, and it is opened before the others.
			r.exists = true
			r.marks.add(int64(row.version))
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
	into := []any{&minion, &version, &row.digest, &row.head, &row.body} // the driver reuses the bytes that it is given
	if r.q.NoPayload {
		into = into[:4]
	}
	if !src.iter.Scan(into...) {
		return row, false, r.s.fail(ctx, "read of returns", src.iter.Close())
	}
	row.minion, row.version = job.Minion(minion), job.Version(version)
	return row, true, nil
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
		r.exists = true
		if r.noCache == 0 || row.version < r.noCache {
			return r.settle(row), nil
		}
	}
}
