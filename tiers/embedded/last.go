package embedded

import "saltern/job"

// lastEdit is the last function of a minion as stored, if there is one, and as it will be.
type lastEdit struct {
	old, now job.LastFunction
	existed  bool
}

// ran merges what a minion did into its last function.
func (m *merge) ran(l job.LastFunction) error {
	e := m.lasts[l.Minion]
	if e == nil {
		old, found, err := m.s.last(m.s.db, l.Minion)
		if err != nil {
			return err
		}
		e = &lastEdit{old: old, now: l, existed: found}
		if found {
			e.now = job.MergeLastFunction(old, l)
		}
		m.lasts[l.Minion] = e
		return nil
	}
	e.now = job.MergeLastFunction(e.now, l)
	return nil
}

func (m *merge) writeLasts() error {
	for id, e := range m.lasts {
		if err := m.set(minionKey(id), encodeLast(e.now)); err != nil {
			return err
		}
		if e.existed && e.old.Fun == e.now.Fun {
			continue
		}
		if e.existed {
			if err := m.remove(functionKey(e.old.Fun, id)); err != nil {
				return err
			}
		}
		if err := m.set(functionKey(e.now.Fun, id), nil); err != nil {
			return err
		}
	}
	return nil
}
