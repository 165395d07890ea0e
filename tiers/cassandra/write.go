package cassandra

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/apache/cassandra-gocql-driver/v2"
	"github.com/cespare/xxhash/v2"

	"saltern/job"
	"saltern/tiers"
)

// row is one statement of a batch. All rows of a batch are in one partition.
type row struct {
	stmt string
	args []any
}

// rowLimits: 50 rows a batch gave 8 times the rows a second of single inserts; beyond 100 there was nothing more to
// gain. A batch stays far below the 16 MiB that Cassandra takes at once.
var rowLimits = limits{items: 100, bytes: 1 << 20, inFlight: 2, all: 64}

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
	w.sendChecks()
	if err := w.send(); err != nil {
		return nil, err
	}
	for _, done := range w.acknowledged {
		done()
	}
	w.takeChecks()
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
	checks       []*check
	// fresh are jobs of which nothing was known before this call.
	fresh map[job.JID]bool
	// written are the timestamps of the rows of heads.
	written map[headKey]int64
	// noCached are the jobs that this call marks.
	noCached map[job.JID]bool
	// returned are the first returns of this call, by job and minion.
	returned map[returnKey]job.Return
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

// Kinds of rows in heads.
const (
	headLoad    = 1 // named by rank
	headMinions = 2 // by the hash of the list
	headEndTime = 3
	headNoCache = 4 // by version
	headBirth   = 5 // by time and class
)

type headKey struct {
	jid  job.JID
	kind int8
	name string
}

const insertHead = `INSERT INTO heads (jid, kind, name, data) VALUES (?, ?, ?, ?) USING TTL ? AND TIMESTAMP ?`

// head writes a row of heads, and what every fact of a job brings with it.
func (w *writing) head(jid job.JID, v job.Version, kind int8, name string, data []byte) error {
	j, at, life, err := w.job(jid, v)
	if err != nil {
		return err
	}
	w.headRow(jid, v, kind, name, data, life.ttl)
	w.arrived(j, jid, at, life, v)
	return nil
}

func (w *writing) headRow(jid job.JID, v job.Version, kind int8, name string, data []byte, ttl int) {
	if data == nil {
		data = []byte{}
	}
	w.add("h"+string(jid), len(data)+len(jid), insertHead, string(jid), kind, name, data, ttl, stamp(v))
	if w.written == nil {
		w.written = make(map[headKey]int64)
	}
	key := headKey{jid, kind, name}
	w.written[key] = max(w.written[key], stamp(v))
}

func (w *writing) load(f job.Load) error {
	j, at, life, err := w.job(f.JID, f.Version)
	if err != nil {
		return err
	}
	w.arrived(j, f.JID, at, life, f.Version)
	j.mu.Lock()
	beaten := j.rank > f.Rank
	j.mu.Unlock()
	if beaten {
		// Salt sends a load with every return: it loses against the publish, which is stored.
		return nil
	}
	name := string([]byte{byte(f.Rank)})
	cell, err := w.s.pack(w.ctx, place{"job/" + string(f.JID), "load/" + name, f.Version}, job.Encode(f), inlineRow, life.ttl,
		func() []byte { h := f; h.Payload = nil; return job.Encode(h) }, len(f.Payload))
	if err != nil {
		return err
	}
	w.headRow(f.JID, f.Version, headLoad, name, cell, life.ttl)
	w.acknowledged = append(w.acknowledged, func() {
		j.mu.Lock()
		j.rank = max(j.rank, f.Rank)
		j.mu.Unlock()
	})
	return nil
}

func (w *writing) minions(f job.Minions) error {
	f.IDs = job.UnionMinions(f.IDs)
	j, at, life, err := w.job(f.JID, f.Version)
	if err != nil {
		return err
	}
	h := fnv.New128a()
	for _, id := range append([]job.Minion{job.Minion(f.Syndic)}, f.IDs...) {
		h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(id))))
		h.Write([]byte(id))
	}
	name := string(h.Sum(nil))
	cell, err := w.s.pack(w.ctx, place{"job/" + string(f.JID), "minions/" + name, f.Version}, job.Encode(f), inlineRow, life.ttl,
		func() []byte { return nil }, 0)
	if err != nil {
		return err
	}
	w.headRow(f.JID, f.Version, headMinions, name, cell, life.ttl)
	w.arrived(j, f.JID, at, life, f.Version)
	for _, id := range f.IDs {
		w.minionJob(f.JID, id, at, life, f.Version)
	}
	return nil
}

func (w *writing) noCache(f job.NoCache) error {
	j, _, life, err := w.job(f.JID, f.Version)
	if err != nil {
		return err
	}
	name := string(binary.BigEndian.AppendUint64(nil, uint64(f.Version)))
	if err := w.head(f.JID, f.Version, headNoCache, name, job.Encode(f)); err != nil {
		return err
	}
	w.add(returnsPartition(f.JID, 0), len(f.JID), `UPDATE returns USING TTL ? AND TIMESTAMP ? SET nocache = true WHERE jid = ? AND bucket = ?`,
		life.ttl, stamp(f.Version), string(f.JID), int16(0))
	if w.noCached == nil {
		w.noCached = make(map[job.JID]bool, 1)
	}
	w.noCached[f.JID] = true
	w.acknowledged = append(w.acknowledged, func() {
		j.mu.Lock()
		j.noCache = true
		j.mu.Unlock()
	})
	return nil
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
	rows, err := s.headRows(ctx, jid, "kind = 5")
	if err != nil {
		return at, err
	}
	if birth := birthOf(rows); !birth.IsZero() {
		return birth, nil
	}
	return at, nil
}

// arrived writes what goes with every fact of a job: its birth, once, and its row in the list of its day, once and
// again when it changed after a while (see summary.go).
func (w *writing) arrived(j *knownJob, jid job.JID, at time.Time, l life, v job.Version) {
	now := w.s.o.Now()
	j.mu.Lock()
	born := j.born && j.bornClass >= l.class
	marked := j.markedClass >= l.class && now.Sub(j.marked) < markEvery
	j.mu.Unlock()
	if !born {
		w.headRow(jid, v, headBirth, string(binary.BigEndian.AppendUint16(
			binary.BigEndian.AppendUint64(nil, uint64(at.UnixMicro())), uint16(l.class))), nil, l.ttl)
		w.day(kindJobs, dayOf(at), l)
	}
	if !marked {
		w.mark(jid, at, l, now)
	}
	if born && marked {
		return
	}
	w.acknowledged = append(w.acknowledged, func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.born, j.bornClass = true, max(j.bornClass, l.class)
		if !marked {
			j.marked, j.markedClass = now, max(j.markedClass, l.class)
		}
	})
}

// jobShards and minionShards are the partitions of a day. A million jobs a day are 125,000 rows a partition.
const (
	jobShards    = 8
	minionShards = 64
	lastShards   = 16
)

func shard(key string, n uint64) int16 { return int16(xxhash.Sum64String(key) % n) }

const insertMark = `INSERT INTO jobs_by_day (day, shard, at, jid, class, changed) VALUES (?, ?, ?, ?, ?, ?) USING TTL ? AND TIMESTAMP ?`

func (w *writing) mark(jid job.JID, at time.Time, l life, now time.Time) {
	day, n := dayOf(at), shard(string(jid), jobShards)
	w.add(partition("d", day.Unix(), n), len(jid), insertMark,
		day, n, at.UnixMicro(), string(jid), int16(l.class), now.UnixMicro(), l.ttl, now.UnixMicro())
}

const insertMinionJob = `INSERT INTO jobs_by_minion (day, shard, minion, at, jid, class) VALUES (?, ?, ?, ?, ?, ?) USING TTL ? AND TIMESTAMP ?`

func (w *writing) minionJob(jid job.JID, id job.Minion, at time.Time, l life, v job.Version) {
	day, n := dayOf(at), shard(string(id), minionShards)
	w.add(partition("m", day.Unix(), n), len(jid)+len(id), insertMinionJob,
		day, n, string(id), at.UnixMicro(), string(jid), int16(l.class), l.ttl, stamp(v))
}

func partition(table string, a int64, b int16) string {
	return string(binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint64([]byte(table), uint64(a)), uint16(b)))
}

// Kinds of days.
const (
	kindJobs   = "jobs"
	kindEvents = "events"
)

type dayKey struct {
	kind  string
	day   int64
	class int
}

const insertDay = `INSERT INTO days (kind, day, class) VALUES (?, ?, ?) USING TTL ? AND TIMESTAMP ?`

// day notes that a day has jobs or events of a class, once for this process.
func (w *writing) day(kind string, day time.Time, l life) {
	key := dayKey{kind, day.Unix(), l.class}
	if _, noted := w.s.days.get(key); noted {
		return
	}
	w.add("y"+kind, 0, insertDay, kind, day, int16(l.class), w.s.wholeDay(day, l), w.s.o.Now().UnixMicro())
	w.acknowledged = append(w.acknowledged, func() { w.s.days.put(key, struct{}{}) })
}
