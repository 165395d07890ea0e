package embedded

import (
	"context"
	"math"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"saltern/job"
	"saltern/tiers"
)

const (
	defaultLimit = 100
	// maxLimit bounds a page whatever the caller asks.
	maxLimit = 1000
	// maxLooks is how many rows one call looks at before it gives a short page: some 30 ms.
	maxLooks = 20_000
	// maxHeadBytes ends a page with loads, which can be large.
	maxHeadBytes = 8 << 20
)

// List gives a page of jobs that pass the filter, newest first. A filter by minion, state, function,
// target or user without a wildcard reads the index; a pattern looks at one summary after another.
func (s *Store) List(ctx context.Context, f tiers.Filter) (tiers.ListPage, error) {
	if err := s.ready(ctx); err != nil {
		return tiers.ListPage{}, err
	}
	l := &listing{s: s, f: f, now: s.o.Now(), limit: limitOf(f.Limit)}
	if err := l.setBounds(); err != nil {
		return tiers.ListPage{}, err
	}
	if !l.before.newer(position{time: l.from}) {
		return tiers.ListPage{}, nil // pebble forbids iterators with such bounds
	}
	snap := s.db.NewSnapshot()
	defer snap.Close()
	l.r = snap
	return l.page(ctx)
}

func limitOf(asked int) int {
	if asked <= 0 {
		return defaultLimit
	}
	return min(asked, maxLimit)
}

// listing is one page of jobs in the making.
type listing struct {
	s     *Store
	r     pebble.Reader
	f     tiers.Filter
	now   time.Time
	limit int
	// from is the oldest time that passes, before the position that all have to be older than.
	from   uint64
	before position
}

func (l *listing) setBounds() error {
	l.before = position{time: math.MaxUint64}
	if !l.f.To.IsZero() {
		l.before = position{time: ceilMicros(l.f.To)}
	}
	if !l.f.From.IsZero() {
		l.from = ceilMicros(l.f.From)
	}
	if l.f.Cursor == "" {
		return nil
	}
	at, err := parsePosition(l.f.Cursor)
	if err != nil {
		return err
	}
	if l.before.newer(at) {
		l.before = at
	}
	return nil
}

// ceilMicros is the first microsecond that is not before t.
func ceilMicros(t time.Time) uint64 { return micros(t.Add(time.Microsecond - 1)) }

func (l *listing) page(ctx context.Context) (page tiers.ListPage, err error) {
	src, err := l.sources(ctx)
	if err != nil {
		return page, err
	}
	defer func() {
		if cerr := src.close(); cerr != nil && err == nil {
			err = unavailable(cerr)
		}
	}()
	headBytes := 0
	for looks := 0; ; looks++ {
		c := src.newest()
		if c == nil {
			return page, nil
		}
		if looks >= maxLooks || len(page.Jobs) >= l.limit || headBytes >= maxHeadBytes {
			page.Next = l.before.cursor()
			return page, nil
		}
		if looks%256 == 255 && ctx.Err() != nil {
			return page, ctx.Err()
		}
		row, err := l.read(c)
		if err != nil {
			return page, err
		}
		if row != nil {
			n, err := l.add(ctx, &page, row)
			if err != nil {
				return page, err
			}
			headBytes += n
		}
		l.before = c.at
		looks += src.advance(c)
	}
}

// add puts a job on the page if it passes, and gives the size of its head.
func (l *listing) add(ctx context.Context, page *tiers.ListPage, r *row) (int, error) {
	passes, err := l.passes(r)
	if err != nil || !passes {
		return 0, err
	}
	if l.hides(r.fun) {
		page.Hidden++
		return 0, nil
	}
	listed := tiers.Listed{Summary: r.summary(job.Keep(l.s.o.DefaultKeep / time.Second))}
	size := 0
	if l.f.Loads {
		h, err := l.s.head(ctx, l.r, r.place, r.jid)
		if err != nil {
			return 0, err
		}
		listed.Head, size = &h, h.Size()
	}
	page.Jobs = append(page.Jobs, listed)
	return size, nil
}

// passes says whether a job is asked for, NotFun aside. Texts that the row has only in part are
// completed.
func (l *listing) passes(r *row) (bool, error) {
	if r.has(flagCut) && r.has(flagLoad) {
		if err := l.complete(r); err != nil {
			return false, err
		}
	}
	f := &l.f
	if !matches(f.Fun, r.fun) || !matches(f.Target, r.target) || !matches(f.User, r.user) ||
		!matches(f.Master, r.master) {
		return false, nil
	}
	if f.State != "" && f.State != r.summary(0).State(l.now) {
		return false, nil
	}
	if f.Minion == "" {
		return true, nil
	}
	prefix := dataPrefix(r.place, r.jid)
	for _, kind := range []byte{kindExpected, kindReturn} {
		found, err := l.s.has(l.r, minionDataKey(prefix, kind, f.Minion))
		if found || err != nil {
			return found, err
		}
	}
	return false, nil
}

func (l *listing) complete(r *row) error {
	key := dataKey(dataPrefix(r.place, r.jid), kindLoad)
	load, found, _, err := getFact[job.Load](l.s, l.r, key, kindLoad, r.jid)
	if found {
		r.fun, r.target, r.targetType = load.Fun, load.Target, load.TargetType
		r.user, r.master = load.User, load.Master
	}
	return err
}

func (l *listing) hides(fun string) bool {
	for _, p := range l.f.NotFun {
		if tiers.Match(p, fun) {
			return true
		}
	}
	return false
}

// matches says whether a value passes a field of a filter; an empty field lets all pass.
func matches(pattern, value string) bool {
	return pattern == "" || tiers.Match(pattern, value)
}

// read gives the summary of a candidate, nil where there is none that can be read. A job found by
// the index may be gone: the index outlives it by a day.
func (l *listing) read(c *candidate) (*row, error) {
	if c.value == nil {
		return l.s.row(l.r, place{c.class, c.at.time}, c.at.jid)
	}
	row, err := decodeRow(place{c.class, c.at.time}, c.at.jid, c.value)
	if err != nil {
		l.s.dropCorrupt(tabSummary, c.at.jid, err)
		return nil, nil
	}
	return row, nil
}

// term is the term of the filter by which the index is read, if there is one: the one that mostly
// leaves the fewest jobs.
func (l *listing) term() (term, bool) {
	switch f := &l.f; {
	case f.Minion != "":
		return term{termMinion, string(f.Minion)}, true
	case f.Target != "" && !tiers.IsPattern(f.Target):
		return term{termTarget, f.Target}, true
	case f.State == job.Failed:
		return term{termState, stateFailed}, true
	case f.State == job.Running, f.State == job.Incomplete:
		return term{termState, stateOpen}, true
	case f.Fun != "" && !tiers.IsPattern(f.Fun):
		return term{termFun, f.Fun}, true
	case f.User != "" && !tiers.IsPattern(f.User):
		return term{termUser, f.User}, true
	default:
		return term{}, false
	}
}
