package embedded

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"saltern/job"
	"saltern/tiers"
)

// Merge merges facts and answers when they are on the disk. All facts of a call are one batch, and
// one fsync serves every call that waits for it. Where ctx ends first, the facts may be stored all
// the same.
func (s *Store) Merge(ctx context.Context, facts []job.Fact) ([]job.Outcome, error) {
	if err := s.ready(ctx); err != nil || len(facts) == 0 {
		return nil, err
	}
	size, err := checkFacts(facts)
	if err != nil {
		return nil, err
	}
	if err := s.db.Take(size, 1); err != nil {
		return nil, err
	}
	batch, outcomes, err := s.apply(facts)
	if err != nil {
		return nil, err
	}
	if err := s.durable(ctx, batch); err != nil {
		return nil, err
	}
	return outcomes, nil
}

// checkFacts refuses what cannot be a key or a value, and gives about how much there is to write.
func checkFacts(facts []job.Fact) (int64, error) {
	size := int64(0)
	for _, f := range facts {
		n := f.Size()
		if n > job.MaxBody {
			return 0, fmt.Errorf("%w: a fact of %d bytes; %d are allowed",
				tiers.ErrTooLarge, n, job.MaxBody)
		}
		size += int64(n)
		if err := checkIDs(f); err != nil {
			return 0, err
		}
	}
	return size, nil
}

func checkIDs(f job.Fact) error {
	switch f := f.(type) {
	case job.Event:
		return nil
	case job.Return:
		if err := checkLength("minion id", string(f.Minion), job.MaxMinionBytes); err != nil {
			return err
		}
	case job.Minions:
		for _, m := range f.IDs {
			if err := checkLength("minion id", string(m), job.MaxMinionBytes); err != nil {
				return err
			}
		}
	}
	return checkLength("jid", string(f.Job()), job.MaxJIDBytes)
}

func checkLength(what, id string, limit int) error {
	if len(id) == 0 || len(id) > limit {
		return fmt.Errorf("%w: %s of %d bytes; 1 to %d are allowed",
			tiers.ErrInvalid, what, len(id), limit)
	}
	return nil
}

// apply merges facts with what is stored. When it returns every reader sees them; they are durable
// when the batch's SyncWait has returned.
func (s *Store) apply(facts []job.Fact) (*pebble.Batch, []job.Outcome, error) {
	s.gate.RLock()
	defer s.gate.RUnlock()
	defer s.stripes.lock(facts)()
	m := newMerge(s)
	outcomes, err := m.merge(facts)
	if err == nil {
		err = m.write()
	}
	if err != nil {
		return nil, nil, errors.Join(err, m.batch.Close())
	}
	if err := s.commit(m.batch); err != nil {
		return nil, nil, err
	}
	return m.batch, outcomes, nil
}

// commit makes a batch visible without waiting for the disk. An empty one is given a record of the
// log all the same: a repeat may be acknowledged only when the first is durable, and the fsync of a
// later record says that. After an error pebble may still hold the batch, so it is left alone.
func (s *Store) commit(b *pebble.Batch) error {
	if b.Empty() {
		if err := b.LogData(nil, nil); err != nil {
			return unavailable(err)
		}
	}
	s.commits.Add(1)
	return s.guarded(func() error { return s.db.ApplyNoSyncWait(b, pebble.Sync) })
}

// commitLater makes a batch visible and leaves it to later writes to make it durable.
func (s *Store) commitLater(b *pebble.Batch) error {
	return s.guarded(func() error { return s.db.Apply(b, pebble.NoSync) })
}

func (s *Store) guarded(apply func() error) error {
	if err := s.db.Guard(apply); err != nil {
		return unavailable(err)
	}
	return nil
}

// durable waits until a committed batch is on the disk.
func (s *Store) durable(ctx context.Context, b *pebble.Batch) error {
	if ctx.Done() == nil {
		return s.synced(b)
	}
	done := make(chan error, 1)
	s.waits.Go(func() { done <- s.synced(b) })
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *Store) synced(b *pebble.Batch) error {
	if err := b.SyncWait(); err != nil {
		s.db.Fail(fmt.Errorf("write of the log: %w", err))
	}
	if err := s.ready(context.Background()); err != nil {
		return err
	}
	if err := b.Close(); err != nil {
		return unavailable(err)
	}
	return nil
}

// merge is one call of Merge: what it changes, and the batch that it becomes.
type merge struct {
	s     *Store
	batch *pebble.Batch
	now   time.Time

	jobs   map[job.JID]*edit
	order  []*edit // the same, in the order of the facts
	lasts  map[job.Minion]*lastEdit
	events map[eventRef]job.Event
}

func newMerge(s *Store) *merge {
	return &merge{
		s: s, batch: s.db.NewBatch(), now: s.o.Now().UTC(),
		jobs: make(map[job.JID]*edit, 1), lasts: make(map[job.Minion]*lastEdit, 1),
	}
}

// merge merges the facts, marks of nocache first: they decide on the returns beside them.
func (m *merge) merge(facts []job.Fact) ([]job.Outcome, error) {
	outcomes := make([]job.Outcome, len(facts))
	for _, marks := range []bool{true, false} {
		for i, f := range facts {
			if _, isMark := f.(job.NoCache); isMark != marks {
				continue
			}
			o, err := m.mergeFact(f)
			if err != nil {
				return nil, err
			}
			outcomes[i] = o
		}
	}
	return outcomes, nil
}

func (m *merge) mergeFact(f job.Fact) (job.Outcome, error) {
	if f, ok := f.(job.Event); ok {
		return m.mergeEvent(f)
	}
	e, err := m.edit(f.Job())
	if err != nil {
		return 0, err
	}
	return e.merge(f)
}

// edit gives the job of a jid as this call has it so far.
func (m *merge) edit(jid job.JID) (*edit, error) {
	if e := m.jobs[jid]; e != nil {
		return e, nil
	}
	e, err := m.load(jid)
	if err != nil {
		return nil, err
	}
	m.jobs[jid] = e
	m.order = append(m.order, e)
	return e, nil
}

func (m *merge) write() error {
	for _, e := range m.order {
		if err := e.write(); err != nil {
			return err
		}
	}
	return m.writeLasts()
}

func (m *merge) set(key, value []byte) error { return m.batch.Set(key, value, nil) }

func (m *merge) remove(key []byte) error { return m.batch.Delete(key, nil) }
