package embedded

import (
	"bytes"
	"cmp"
	"time"

	"saltern/job"
)

// edit is a job of which facts are being merged. It reads of the job only what a fact needs: a
// return of a job of 60,000 minions reads three keys and writes two.
type edit struct {
	m   *merge
	old *row // as stored; nil for a new job
	row row  // as it will be
	// began is false until the first fact. recounted says that the stored summary was lost.
	began, recounted bool

	load     *job.Load // nil where it stays as it is; so are the next two
	endTime  *job.EndTime
	noCache  *job.NoCache
	expected map[job.Minion]bool // those asked for: whether the job was sent to them
	added    []job.Minion        // those expected that are new
	returns  map[job.Minion]*returnEdit
}

// returnEdit is a minion's return as stored, as it will be, or neither.
type returnEdit struct {
	ret            job.Return
	exists, change bool
	// damaged is a stored return that is corrupt. It counts as a return, and any other replaces it.
	damaged bool
}

// load reads what is stored of a job, without its rows.
func (m *merge) load(jid job.JID) (*edit, error) {
	e := &edit{m: m, row: row{jid: jid, loadKeep: job.KeepUnset, anyKeep: job.KeepUnset}}
	p, found, err := m.s.place(m.s.db, jid)
	if err != nil {
		return nil, err
	}
	if !found {
		e.row.place.time = micros(jid.PlausibleTime(m.now))
		return e, nil
	}
	old, err := m.s.row(m.s.db, p, jid)
	if err != nil {
		return nil, err
	}
	if old == nil {
		if old, err = m.s.recount(m.s.db, p, jid); err != nil {
			return nil, err
		}
		e.recounted = true
	}
	e.old, e.row = old, *old
	return e, nil
}

// cameAt is when a fact came, as its version says: for what is imported that is long ago.
func (m *merge) cameAt(f job.Fact) time.Time {
	if v := f.Stamp(); v != 0 && v.Time().Before(m.now) {
		return v.Time()
	}
	return m.now
}

// merge merges one fact into the job.
func (e *edit) merge(f job.Fact) (outcome job.Outcome, err error) {
	switch f := f.(type) {
	case job.Load:
		e.keep(f.Keep)
		outcome, err = e.mergeLoad(f)
	case job.Minions:
		e.keep(f.Keep)
		outcome, err = e.mergeMinions(f)
	case job.Return:
		if outcome, err = e.mergeReturn(f); outcome != job.Dropped {
			e.keep(f.Keep)
		}
	case job.EndTime:
		e.keep(f.Keep)
		outcome, err = e.mergeEndTime(f)
	case job.NoCache:
		e.keep(f.Keep)
		outcome, err = e.mergeNoCache(f)
	}
	if err != nil {
		return 0, err
	}
	if outcome == job.Stored {
		e.row.last = max(e.row.last, micros(e.m.cameAt(f)))
		if e.old == nil && !e.began {
			outcome = job.Created
		}
	}
	e.began = true
	return outcome, nil
}

func (e *edit) keep(k job.Keep) { e.row.anyKeep = job.LongerKeep(e.row.anyKeep, k) }

// mergeLoad compares by what the row has of the stored load; the load itself is read only where
// that leaves it open. Salt sends a load with every return, which loses against the publish here.
func (e *edit) mergeLoad(l job.Load) (job.Outcome, error) {
	order := cmp.Or(cmp.Compare(l.Rank, e.row.loadRank), cmp.Compare(l.Version, e.row.loadVersion))
	if e.row.has(flagLoad) && order < 0 {
		return job.Stored, nil
	}
	if e.row.has(flagLoad) && order == 0 {
		stored, found, err := e.storedLoad()
		if err != nil {
			return 0, err
		}
		if found {
			if bytes.Equal(job.Encode(stored), job.Encode(l)) {
				return job.Repeat, nil
			}
			l = job.MergeLoad(stored, l)
		}
	}
	e.load = &l
	e.row.setLoad(l)
	return job.Stored, nil
}

func (e *edit) storedLoad() (job.Load, bool, error) {
	if e.load != nil {
		return *e.load, true, nil
	}
	l, found, _, err := getFact[job.Load](e.m.s, e.m.s.db, e.oldKey(kindLoad), kindLoad, e.row.jid)
	return l, found, err
}

func (e *edit) mergeMinions(f job.Minions) (job.Outcome, error) {
	news := 0
	for _, id := range f.IDs {
		expected, err := e.isExpected(id)
		if err != nil {
			return 0, err
		}
		if expected {
			continue
		}
		r, err := e.returned(id)
		if err != nil {
			return 0, err
		}
		news++
		e.expected[id] = true
		e.added = append(e.added, id)
		e.row.expected++
		if !r.exists {
			e.row.missing++
		}
	}
	if news == 0 && (e.began || e.old != nil) {
		return job.Repeat, nil
	}
	return job.Stored, nil
}

// isExpected says whether the job was sent to a minion, as far as is known.
func (e *edit) isExpected(id job.Minion) (bool, error) {
	if is, known := e.expected[id]; known {
		return is, nil
	}
	is, err := false, error(nil)
	if e.old != nil && e.old.expected > 0 {
		key := minionDataKey(dataPrefix(e.old.place, e.row.jid), kindExpected, id)
		is, err = e.m.s.has(e.m.s.db, key)
	}
	if e.expected == nil {
		e.expected = make(map[job.Minion]bool, 1)
	}
	e.expected[id] = is
	return is, err
}

// returned gives the return of a minion as this call has it so far.
func (e *edit) returned(id job.Minion) (*returnEdit, error) {
	if r := e.returns[id]; r != nil {
		return r, nil
	}
	r := &returnEdit{}
	if e.old == nil || e.old.returned == 0 {
		// Asked of every minion of a new job: none is remembered.
		return r, nil
	}
	key := minionDataKey(dataPrefix(e.old.place, e.row.jid), kindReturn, id)
	ret, found, exists, err := getFact[job.Return](e.m.s, e.m.s.db, key, kindReturn, e.row.jid)
	r.ret, r.exists, r.damaged = ret, exists, exists && !found
	return r, err
}

func (e *edit) mergeReturn(f job.Return) (job.Outcome, error) {
	if e.row.has(flagNoCache) {
		return job.Dropped, nil
	}
	if !e.row.has(flagLoad) {
		// Until there is a load the returns say what ran; the least one, whatever their order.
		e.row.fun = least(e.row.fun, e.row.cut(f.Fun))
		e.row.master = least(e.row.master, e.row.cut(f.Master))
	}
	r, err := e.returned(f.Minion)
	if err != nil {
		return 0, err
	}
	if !r.exists {
		return job.Stored, e.addReturn(r, f)
	}
	if r.damaged {
		return job.Stored, e.setReturn(r, f)
	}
	winner, differ := job.MergeReturn(r.ret, f)
	// A return that is older than the one that was here first, from a spool or another master, is
	// the first one.
	wins := f.Version < r.ret.Version || f.Version == r.ret.Version && !bytes.Equal(
		job.Encode(winner), job.Encode(r.ret))
	if wins {
		if err := e.replaceReturn(r, f); err != nil {
			return 0, err
		}
	}
	switch {
	case !differ:
		return job.Repeat, nil
	case wins:
		return job.Stored, nil
	default:
		return job.Differs, nil
	}
}

func (e *edit) addReturn(r *returnEdit, f job.Return) error {
	expected, err := e.isExpected(f.Minion)
	if err != nil {
		return err
	}
	r.exists = true
	e.row.returned++
	if expected {
		e.row.missing--
	}
	if f.Failed {
		e.row.failed++
	}
	return e.setReturn(r, f)
}

func least(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return min(a, b)
}

func (e *edit) replaceReturn(r *returnEdit, f job.Return) error {
	if r.ret.Failed {
		e.row.failed--
	}
	if f.Failed {
		e.row.failed++
	}
	return e.setReturn(r, f)
}

func (e *edit) setReturn(r *returnEdit, f job.Return) error {
	r.ret, r.change, r.damaged = f, true, false
	if e.returns == nil {
		e.returns = make(map[job.Minion]*returnEdit, 1)
	}
	e.returns[f.Minion] = r
	return e.m.ran(job.LastFunction{
		Minion: f.Minion, Fun: f.Fun, JID: e.row.jid, JobTime: microsTime(e.row.place.time),
		Version: f.Version, Failed: f.Failed, Seen: e.m.cameAt(f),
	})
}

func (e *edit) mergeEndTime(f job.EndTime) (job.Outcome, error) {
	return mergeOnly(e, &e.endTime, f, kindEndTime, flagEndTime, job.MergeEndTime)
}

// mergeNoCache marks the job. Returns that were acknowledged before stay: nothing that was is taken
// back.
func (e *edit) mergeNoCache(f job.NoCache) (job.Outcome, error) {
	return mergeOnly(e, &e.noCache, f, kindNoCache, flagNoCache, job.MergeNoCache)
}

// mergeOnly merges a fact of which a job has one at most. have is the one that this edit has already
// merged, nil for none.
func mergeOnly[F interface {
	comparable
	job.Fact
}](e *edit, have **F, f F, kind byte, flag uint64, merge func(a, b F) F) (job.Outcome, error) {
	stored := *have
	if stored == nil && e.row.has(flag) {
		old, found, _, err := getFact[F](e.m.s, e.m.s.db, e.oldKey(kind), kind, e.row.jid)
		if err != nil {
			return 0, err
		}
		if found {
			stored = &old
		}
	}
	if stored != nil {
		if *stored == f {
			return job.Repeat, nil
		}
		if f = merge(*stored, f); f == *stored {
			return job.Stored, nil
		}
	}
	*have = &f
	e.row.flags |= flag
	return job.Stored, nil
}

// oldKey is a key of the job where it is stored now.
func (e *edit) oldKey(kind byte) []byte {
	return dataKey(dataPrefix(e.old.place, e.row.jid), kind)
}
