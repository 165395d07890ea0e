package cassandra

import (
	"context"
	"errors"
	"time"

	"github.com/apache/cassandra-gocql-driver/v2"
	"golang.org/x/sync/errgroup"

	"saltern/job"
)

// daySource gives the jobs of a day, newest first.
type daySource struct {
	l *listing
	// shards are the parts of the day, each in order.
	shards []*shardSource
	// minion says that rows are of jobs_by_minion: what the list has of each job is read one by one.
	minion bool
	day    time.Time
}

type shardSource struct {
	iter *gocql.Iter
	row  candidate
	ok   bool
	// ahead is the row behind those of row, where there is one.
	ahead   candidate
	isAhead bool
}

// open opens the parts of a day that can have jobs that pass.
func (l *listing) open(ctx context.Context, day time.Time) (*daySource, error) {
	src := &daySource{l: l, day: day, minion: l.f.Minion != ""}
	bound := []any{l.from, l.before.at, string(l.before.jid)}
	if src.minion {
		id := string(l.f.Minion)
		q := l.session.Query(selectMinionJobs, append([]any{day, shard(id, minionShards), id}, bound...)...)
		src.shards = []*shardSource{{iter: q.Consistency(l.s.reads).PageSize(listRows).IterContext(ctx)}}
	} else {
		src.shards = make([]*shardSource, jobShards)
		var g errgroup.Group
		for n := range src.shards {
			g.Go(func() error {
				q := l.session.Query(selectDay, append([]any{day, int16(n)}, bound...)...)
				src.shards[n] = &shardSource{iter: q.Consistency(l.s.reads).PageSize(listRows).IterContext(ctx)}
				return nil
			})
		}
		_ = g.Wait() // an iterator has its error
	}
	for _, one := range src.shards {
		if err := src.advance(ctx, one); err != nil {
			src.close()
			return nil, err
		}
	}
	return src, nil
}

func (d *daySource) close() {
	for _, one := range d.shards {
		_ = one.iter.Close() // its error was taken when its rows ended
	}
}

// scan reads a row. A row of the list may have no summary, and one of a minion has no mark either.
func (d *daySource) scan(ctx context.Context, one *shardSource) (c candidate, ok bool, err error) {
	var jid string
	var changed int64
	var summary []byte // the driver reuses the bytes that it is given
	into := []any{&c.at.at, &jid, &changed, &summary}
	if d.minion {
		into = into[:2]
	}
	if !one.iter.Scan(into...) {
		return c, false, d.l.s.fail(ctx, "read of the list of jobs", one.iter.Close())
	}
	c.at.jid = job.JID(jid)
	c.set(d.l.s, changed, summary)
	return c, true, nil
}

// set takes what a row of the list says into account.
func (c *candidate) set(s *Store, changed int64, summary []byte) {
	o := candidate{changed: time.UnixMicro(changed)}
	if summary != nil {
		stored, err := decodeSummary(c.at.jid, summary)
		if err != nil {
			s.dropCorrupt("jobs_by_day", c.at.jid, err)
		} else {
			o.stored = stored
		}
	}
	c.join(o)
}

// advance reads the next job of a part. A job has a row for each class, one after the other.
func (d *daySource) advance(ctx context.Context, one *shardSource) error {
	one.row, one.ok, one.isAhead = one.ahead, one.isAhead, false
	for {
		c, ok, err := d.scan(ctx, one)
		if !ok || err != nil {
			return err
		}
		if one.ok && c.at != one.row.at {
			one.ahead, one.isAhead = c, true
			return nil
		}
		if !one.ok {
			one.row, one.ok = c, true
			continue
		}
		one.row.join(c)
	}
}

// join takes what another row of the job says into account.
func (c *candidate) join(o candidate) {
	if o.changed.After(c.changed) {
		c.changed = o.changed
	}
	if o.stored.counted.After(c.stored.counted) {
		c.stored = o.stored
	}
}

// take gives the next jobs, at most n.
func (d *daySource) take(ctx context.Context, n int) ([]candidate, error) {
	var batch []candidate
	for len(batch) < n {
		var first *shardSource
		for _, one := range d.shards {
			if one.ok && (first == nil || one.row.at.newer(first.row.at)) {
				first = one
			}
		}
		if first == nil {
			break
		}
		batch = append(batch, first.row)
		if err := d.advance(ctx, first); err != nil {
			return nil, err
		}
	}
	if !d.minion {
		return batch, nil
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(countsAtOnce)
	for i := range batch {
		g.Go(func() error { return d.lookUp(gctx, &batch[i]) })
	}
	return batch, g.Wait()
}

// lookUp reads what the list has of a job that was found by its minion.
func (d *daySource) lookUp(ctx context.Context, c *candidate) error {
	jid := string(c.at.jid)
	iter := d.l.session.Query(selectListed, d.day, shard(jid, jobShards), c.at.at, jid).Consistency(d.l.s.reads).IterContext(ctx)
	for {
		var changed int64
		var summary []byte
		if !iter.Scan(&changed, &summary) {
			break
		}
		c.set(d.l.s, changed, summary)
	}
	err := iter.Close()
	if errors.Is(err, gocql.ErrNotFound) {
		err = nil
	}
	return d.l.s.fail(ctx, "read of the list of jobs", err)
}
