package embedded

import (
	"context"
	"fmt"

	"saltern/job"
	"saltern/tiers"
)

// SaveRegister stores the registers of a master in place of those before.
func (s *Store) SaveRegister(ctx context.Context, master string, data []byte) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	if err := s.db.Take(int64(len(data)), 1); err != nil {
		return err
	}
	b := s.db.NewBatch()
	if err := b.Set(registerKey(master), job.Seal(0, data), nil); err != nil {
		return unavailable(err)
	}
	if err := s.commit(b); err != nil {
		return err
	}
	return s.durable(ctx, b)
}

// LoadRegister gives the registers of a master.
func (s *Store) LoadRegister(ctx context.Context, master string) ([]byte, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	value, found, err := s.get(s.db, registerKey(master))
	if err != nil {
		return nil, err
	}
	if found {
		_, data, err := job.Open(value)
		if err == nil {
			return data, nil
		}
		s.dropCorrupt(tabRegister, "", err)
	}
	return nil, fmt.Errorf("register of %q: %w", master, tiers.ErrNotFound)
}
