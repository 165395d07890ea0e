package cassandra

import (
	"context"
	"fmt"
	"time"

	"github.com/apache/cassandra-gocql-driver/v2"

	"saltern/job"
	"saltern/tiers"
)

// row is one statement of a batch. All rows of a batch are in one partition.
type row struct {
	stmt string
	args []any
}

// rowLimits: beyond 100 rows a batch there is nothing more to gain, and it stays far below the 16 MiB that Cassandra
// takes at once. One batch of a partition at a time makes the next one larger; what it can cost is a round trip.
var rowLimits = limits{items: 100, bytes: 1 << 20, inFlight: 1, all: 64}

// sendRows is one write of one partition.
func (s *Store) sendRows(ctx context.Context, rows []row) error {
	session, err := s.session()
	if err != nil {
		return err
	}
	if len(rows) == 1 {
		return session.Query(rows[0].stmt, rows[0].args...).Consistency(s.writes).ExecContext(ctx)
	}
	batch := session.Batch(gocql.UnloggedBatch).Consistency(s.writes)
	for _, r := range rows {
		// The cluster's DefaultIdempotence is not looked at for batches.
		batch.Entries = append(batch.Entries, gocql.BatchEntry{Stmt: r.stmt, Args: r.args, Idempotent: true})
	}
	return batch.ExecContext(ctx)
}

// Merge writes facts. It answers when a quorum has all of them; after an error some may be stored, which a second
// Merge of the same facts does not mind. Facts of one call, and of calls at the same time, that go to one partition
// go in one batch.
func (s *Store) Merge(ctx context.Context, facts []job.Fact) ([]job.Outcome, error) {
	if len(facts) == 0 {
		return nil, ctx.Err()
	}
	if _, err := s.session(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	w := &writing{s: s, ctx: ctx, groups: make(map[string]*group), outcomes: make([]job.Outcome, len(facts))}
	for _, f := range facts {
		// Before the first row is written: the load may be the last fact of the call.
		if jid := f.Job(); jid != "" {
			s.known.job(jid).learn(f)
		}
	}
	for i, f := range facts {
		if err := w.fact(i, f); err != nil {
			return nil, err
		}
	}
	if err := w.send(); err != nil {
		return nil, err
	}
	for _, done := range w.acknowledged {
		done()
	}
	w.findCreated(facts)
	return w.outcomes, nil
}

// writing is one Merge.
type writing struct {
	s        *Store
	ctx      context.Context
	groups   map[string]*group
	keys     []string
	outcomes []job.Outcome
	// acknowledged are called once everything is stored.
	acknowledged []func()
	// fresh are jobs of which nothing was known before this call.
	fresh map[job.JID]bool
	// written are the timestamps of the rows of heads.
	written map[headKey]int64
	// noCached are the jobs that this call marks.
	noCached map[job.JID]bool
	// returned are the first returns of this call, by job and minion.
	returned map[returnKey]seenReturn
}

// group are rows of one partition.
type group struct {
	rows  []row
	bytes int
}

type returnKey struct {
	jid    job.JID
	minion job.Minion
}

// rowOverhead is about what a row takes beside its payload.
const rowOverhead = 100

// add puts a row into the group of its partition.
func (w *writing) add(partition string, bytes int, stmt string, args ...any) {
	g := w.groups[partition]
	if g == nil {
		g = &group{}
		w.groups[partition] = g
		w.keys = append(w.keys, partition)
	}
	g.rows = append(g.rows, row{stmt, args})
	g.bytes += bytes + rowOverhead
}

// send hands all rows over and waits for them.
func (w *writing) send() error {
	var pending []<-chan error
	for _, key := range w.keys {
		g := w.groups[key]
		each := g.bytes/len(g.rows) + 1
		for rows := g.rows; len(rows) > 0; {
			// As many as a batch takes, by rows and on the average by bytes.
			n := min(len(rows), rowLimits.items, max(1, rowLimits.bytes/each))
			pending = append(pending, w.s.rows.put(w.ctx, key, rows[:n], n*each))
			rows = rows[n:]
		}
	}
	var first error
	for _, done := range pending {
		select {
		case err := <-done:
			if first == nil {
				first = err
			}
		case <-w.ctx.Done():
			return w.s.fail(w.ctx, "write", w.ctx.Err())
		}
	}
	return w.s.fail(w.ctx, "write", first)
}

func (w *writing) fact(i int, f job.Fact) error {
	if n := f.Size(); n > job.MaxBody {
		return fmt.Errorf("%w: a fact of %d bytes; %d are allowed", tiers.ErrTooLarge, n, job.MaxBody)
	}
	switch f := f.(type) {
	case job.Load:
		return w.load(f)
	case job.Minions:
		return w.minions(f)
	case job.Return:
		return w.ret(i, f)
	case job.EndTime:
		return w.head(f.JID, f.Version, headEndTime, "", job.Encode(f))
	case job.NoCache:
		return w.noCache(f)
	case job.Event:
		return w.event(f)
	default:
		return fmt.Errorf("%w: fact %T", tiers.ErrInvalid, f)
	}
}

// job gives what is known of a job, its time, and how long a row lives that comes with a fact now.
func (w *writing) job(jid job.JID, v job.Version) (*knownJob, time.Time, life, error) {
	if n := len(jid); n == 0 || n > job.MaxJIDBytes {
		return nil, time.Time{}, life{}, fmt.Errorf("%w: jid of %d bytes; 1 to %d are allowed", tiers.ErrInvalid, n, job.MaxJIDBytes)
	}
	j := w.s.known.job(jid)
	j.mu.Lock()
	at := j.at
	if at.IsZero() {
		if w.fresh == nil {
			w.fresh = make(map[job.JID]bool, 1)
		}
		w.fresh[jid] = true
	}
	keep := j.kept()
	j.mu.Unlock()
	if at.IsZero() {
		var err error
		if at, err = w.s.firstTime(w.ctx, jid, v); err != nil {
			return nil, at, life{}, err
		}
		j.mu.Lock()
		j.at = at
		j.mu.Unlock()
	}
	return j, at, w.s.lifeOf(keep, at), nil
}

// firstTime is the time of a job that this process has not met. Only a jid that has no time of its own costs a read.
func (s *Store) firstTime(ctx context.Context, jid job.JID, v job.Version) (time.Time, error) {
	at := jid.PlausibleTime(v.Time())
	if own, ok := jid.Time(); ok && own.Equal(at) {
		return at, nil
	}
	rows, err := s.headRows(ctx, jid, headBirth)
	if err != nil {
		return at, err
	}
	if birth := birthOf(rows); !birth.IsZero() {
		return birth, nil
	}
	return at, nil
}
