package cassandra

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/apache/cassandra-gocql-driver/v2"
	"golang.org/x/sync/errgroup"

	"saltern/job"
	"saltern/tiers"
)

const (
	// listLooks is how many jobs one call looks at before it gives a short page, and countsAtOnce how many of them are
	// counted at a time.
	listLooks    = 2000
	countsAtOnce = 16
	// listRows is how many candidates are looked at together, headRows how many with their loads, which can be large.
	listRows = 64
	headRows = 8
)

// List gives a page of jobs that pass the filter, newest first.
func (s *Store) List(ctx context.Context, f tiers.Filter) (tiers.ListPage, error) {
	session, err := s.session()
	if err != nil {
		return tiers.ListPage{}, err
	}
	l := &listing{s: s, session: session, f: f, now: s.o.Now(), limit: limitOf(f.Limit), before: newest}
	if err := l.setBounds(); err != nil {
		return tiers.ListPage{}, err
	}
	if err := l.run(ctx); err != nil {
		return tiers.ListPage{}, err
	}
	return l.page, nil
}

// listing is one page of jobs in the making.
type listing struct {
	s       *Store
	session *gocql.Session
	f       tiers.Filter
	now     time.Time
	limit   int
	// from is the oldest time that passes; before is the position that all have to be older than.
	from          int64
	before        position
	page          tiers.ListPage
	looks, loaded int
}

func (l *listing) setBounds() error {
	l.from = firstDay.UnixMicro()
	if !l.f.From.IsZero() {
		l.from = ceilMicros(l.f.From)
	}
	if !l.f.To.IsZero() {
		l.before = position{at: ceilMicros(l.f.To)}
	}
	if l.f.Cursor == "" {
		return nil
	}
	at, err := parsePosition(l.f.Cursor)
	if err == nil && l.before.newer(at) {
		l.before = at
	}
	return err
}

// run walks the days that have jobs.
func (l *listing) run(ctx context.Context) error {
	to := lastDay
	if l.before.at < lastDay.UnixMicro() {
		to = time.UnixMicro(l.before.at)
	}
	days, err := l.s.daysWith(ctx, kindJobs, orDay(l.f.From, firstDay), to)
	if err != nil {
		return err
	}
	for _, day := range days {
		full, err := l.day(ctx, day)
		if err != nil || full {
			return err
		}
	}
	return nil
}

// day adds the jobs of a day and says whether the page is full.
func (l *listing) day(ctx context.Context, day time.Time) (full bool, err error) {
	src, err := l.open(ctx, day)
	if err != nil {
		return false, err
	}
	defer src.close()
	for {
		// No more than fit on the page, as each may have to be counted; one to know that there are more.
		most := listRows
		if l.f.Loads {
			most = headRows
		}
		batch, err := src.take(ctx, max(1, min(most, l.limit-len(l.page.Jobs))))
		if err != nil || len(batch) == 0 {
			return false, err
		}
		if len(l.page.Jobs) >= l.limit || l.looks >= listLooks || l.loaded >= maxPageBytes {
			l.page.Next = l.before.cursor()
			return true, nil
		}
		if err := l.fill(ctx, batch); err != nil {
			return false, err
		}
		for i := range batch {
			l.looks++
			if err := l.add(ctx, &batch[i]); err != nil {
				return false, err
			}
			l.before = batch[i].at
		}
	}
}

// candidate is a job that may be on the page.
type candidate struct {
	at position
	// changed and summary are of its row in the list.
	changed time.Time
	stored  storedSummary
	// sum is what the page shows; found says that there is such a job, and that this is its place.
	sum   job.Summary
	found bool
}

// fill gets the summaries of candidates: those that are stored and hold, and those that have to be counted.
func (l *listing) fill(ctx context.Context, batch []candidate) error {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(countsAtOnce)
	for i := range batch {
		c := &batch[i]
		if c.stored.holds(c.changed) {
			c.sum, c.found = c.stored.Summary, true
			continue
		}
		g.Go(func() error { return l.count(gctx, c) })
	}
	return g.Wait()
}

func (l *listing) count(ctx context.Context, c *candidate) error {
	counted := l.s.o.Now()
	sum, err := l.s.count(ctx, c.at.jid)
	if errors.Is(err, tiers.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	// Processes that met the job at the same moment may each have given it a time; the earliest is the one.
	c.sum, c.found = sum, sum.Time.UnixMicro() == c.at.at
	if c.found && counted.Sub(c.changed) >= restAfter && fitsRow(sum) {
		l.s.keepSummary(sum, counted)
	}
	return nil
}

// keepSummary keeps the summary of a job at rest. Nobody waits for it: whoever lists the job next does it again.
func (s *Store) keepSummary(sum job.Summary, counted time.Time) {
	life := s.lifeOf(sum.Keep, sum.Time)
	day, n := dayOf(sum.Time), shard(string(sum.JID), jobShards)
	value := encodeSummary(sum, counted)
	s.rows.put(s.ctx, partition("d", day.Unix(), n), []row{{insertSummary, []any{
		day, n, sum.Time.UnixMicro(), string(sum.JID), int16(life.class), value, life.ttl, counted.UnixMicro(),
	}}}, len(value))
}

// add puts a job on the page if it passes.
func (l *listing) add(ctx context.Context, c *candidate) error {
	if !c.found || !l.passes(c.sum) {
		return nil
	}
	if slices.ContainsFunc(l.f.NotFun, func(p string) bool { return tiers.Match(p, c.sum.Fun) }) {
		l.page.Hidden++
		return nil
	}
	listed := tiers.Listed{Summary: c.sum}
	if l.f.Loads {
		h, err := l.s.Head(ctx, c.at.jid)
		if errors.Is(err, tiers.ErrNotFound) { // it has passed its time meanwhile
			return nil
		}
		if err != nil {
			return err
		}
		listed.Head = &h
		l.loaded += h.Size()
	}
	l.page.Jobs = append(l.page.Jobs, listed)
	return nil
}

// passes says whether a job is asked for, NotFun aside. The filter by minion is the source's.
func (l *listing) passes(s job.Summary) bool {
	f := &l.f
	return matches(f.Fun, s.Fun) && matches(f.Target, s.Target) && matches(f.User, s.User) && matches(f.Master, s.Master) &&
		(f.State == "" || f.State == s.State(l.now))
}

// matches says whether a value passes a field of a filter; an empty field lets all pass.
func matches(pattern, value string) bool { return pattern == "" || tiers.Match(pattern, value) }
