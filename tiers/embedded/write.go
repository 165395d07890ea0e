package embedded

import (
	"bytes"
	"context"

	"github.com/cockroachdb/pebble/v2"

	"saltern/job"
)

// write puts the changes of a job into the batch.
func (e *edit) write() error {
	m := e.m
	c, isNew := m.s.classes.admit(classOf(e.row.keep()))
	e.row.place.class = c
	if isNew {
		if err := m.set(classKey(c), nil); err != nil {
			return err
		}
	}
	if e.old != nil && *e.old == e.row && !e.changed() {
		return nil
	}
	if e.old != nil && e.old.place != e.row.place {
		if err := e.move(); err != nil {
			return err
		}
	}
	if e.old == nil || e.old.place != e.row.place {
		if err := m.set(placeKey(e.row.jid), encodePlace(e.row.place)); err != nil {
			return err
		}
	}
	if err := m.set(summaryKey(e.row.place, e.row.jid), encodeRow(&e.row)); err != nil {
		return err
	}
	if err := e.writeTerms(); err != nil {
		return err
	}
	return e.writeData()
}

func (e *edit) changed() bool {
	if e.recounted || e.load != nil || e.endTime != nil || e.noCache != nil || len(e.added) > 0 {
		return true
	}
	for _, r := range e.returns {
		if r.change {
			return true
		}
	}
	return false
}

// move moves the rows of a job whose retention changed to its new place. It is rare, and the whole
// job is in the batch: mostly a return came before its load.
func (e *edit) move() error {
	m := e.m
	from, to := dataPrefix(e.old.place, e.row.jid), dataPrefix(e.row.place, e.row.jid)
	err := m.s.scan(context.Background(), m.s.db, from, func(key, value []byte) error {
		rest := key[len(from):]
		if err := m.set(append(bytes.Clone(to), rest...), value); err != nil {
			return err
		}
		if rest[0] != kindExpected && rest[0] != kindReturn {
			return nil
		}
		id := string(rest[1:])
		if err := m.remove(termKey(e.old.place, e.row.jid, termMinion, id)); err != nil {
			return err
		}
		return m.set(termKey(e.row.place, e.row.jid, termMinion, id), nil)
	})
	if err != nil {
		return err
	}
	if err := m.batch.DeleteRange(from, after(from), nil); err != nil {
		return err
	}
	return m.remove(summaryKey(e.old.place, e.row.jid))
}

// term is one value by which a job is found.
type term struct {
	kind  byte
	value string
}

// terms are those of a row; the minions of a job are terms too.
func (r *row) terms() []term {
	terms := make([]term, 0, 4)
	for _, t := range []term{{termFun, r.fun}, {termTarget, r.target}, {termUser, r.user}} {
		if t.value != "" {
			t.value = t.value[:min(len(t.value), maxTerm)]
			terms = append(terms, t)
		}
	}
	switch {
	case r.failed > 0:
		terms = append(terms, term{termState, stateFailed})
	case !r.complete():
		terms = append(terms, term{termState, stateOpen})
	}
	return terms
}

// writeTerms writes the difference of the terms before and after.
func (e *edit) writeTerms() error {
	var before []term
	if e.old != nil {
		before = e.old.terms()
	}
	now := e.row.terms()
	moved := e.old != nil && e.old.place != e.row.place
	for _, t := range before {
		if moved || !hasTerm(now, t) {
			if err := e.m.remove(termKey(e.old.place, e.row.jid, t.kind, t.value)); err != nil {
				return err
			}
		}
	}
	for _, t := range now {
		if moved || !hasTerm(before, t) {
			if err := e.m.set(termKey(e.row.place, e.row.jid, t.kind, t.value), nil); err != nil {
				return err
			}
		}
	}
	return nil
}

func hasTerm(terms []term, t term) bool {
	for _, o := range terms {
		if o == t {
			return true
		}
	}
	return false
}

// writeData writes the facts of the job that are new or changed.
func (e *edit) writeData() error {
	m, prefix := e.m, dataPrefix(e.row.place, e.row.jid)
	if e.load != nil {
		if err := m.set(dataKey(prefix, kindLoad), job.Encode(*e.load)); err != nil {
			return err
		}
	}
	if e.endTime != nil {
		if err := m.set(dataKey(prefix, kindEndTime), job.Encode(*e.endTime)); err != nil {
			return err
		}
	}
	if e.noCache != nil {
		if err := m.set(dataKey(prefix, kindNoCache), job.Encode(*e.noCache)); err != nil {
			return err
		}
	}
	for _, id := range e.added {
		if err := m.set(minionDataKey(prefix, kindExpected, id), nil); err != nil {
			return err
		}
		if err := m.set(termKey(e.row.place, e.row.jid, termMinion, string(id)), nil); err != nil {
			return err
		}
	}
	for id, r := range e.returns {
		if !r.change {
			continue
		}
		if err := m.set(minionDataKey(prefix, kindReturn, id), job.Encode(r.ret)); err != nil {
			return err
		}
		if e.expected[id] {
			continue // it has its term since it is expected
		}
		if err := m.set(termKey(e.row.place, e.row.jid, termMinion, string(id)), nil); err != nil {
			return err
		}
	}
	return nil
}

// row reads the summary of a job. It is nil where there is none that can be read.
func (s *Store) row(r pebble.Reader, p place, jid job.JID) (*row, error) {
	value, found, err := s.get(r, summaryKey(p, jid))
	if err != nil || !found {
		return nil, err
	}
	row, err := decodeRow(p, jid, value)
	if err != nil {
		s.dropCorrupt(tabSummary, jid, err)
		return nil, nil
	}
	return row, nil
}

// recount makes the summary of a job anew from its rows, where the stored one is lost.
func (s *Store) recount(r pebble.Reader, p place, jid job.JID) (*row, error) {
	out := &row{jid: jid, place: p, loadKeep: job.KeepUnset, anyKeep: p.class.asKeep()}
	prefix := dataPrefix(p, jid)
	expected := make(map[job.Minion]bool)
	err := s.scan(context.Background(), r, prefix, func(key, value []byte) error {
		kind, id := key[len(prefix)], job.Minion(key[len(prefix)+1:])
		switch kind {
		case kindLoad:
			if l, ok := decodeFact[job.Load](s, kind, jid, value); ok {
				out.setLoad(l)
			}
		case kindEndTime:
			out.flags |= flagEndTime
		case kindNoCache:
			out.flags |= flagNoCache
		case kindExpected:
			expected[id] = true
			out.expected++
			out.missing++
		case kindReturn:
			out.returned++
			if expected[id] {
				out.missing--
			}
			ret, ok := decodeFact[job.Return](s, kind, jid, value)
			if ok && ret.Failed {
				out.failed++
			}
			if ok && !out.has(flagLoad) {
				out.fun = least(out.fun, out.cut(ret.Fun))
				out.master = least(out.master, out.cut(ret.Master))
			}
			out.last = max(out.last, micros(ret.Version.Time()))
		}
		return nil
	})
	return out, err
}
