package cassandra

import (
	"context"
	"errors"
	"fmt"

	"github.com/apache/cassandra-gocql-driver/v2"

	"saltern/job"
	"saltern/tiers"
)

// SaveRegister stores the registers of a master in place of those before.
func (s *Store) SaveRegister(ctx context.Context, master string, data []byte) error {
	session, err := s.session()
	if err != nil {
		return err
	}
	now := job.VersionAt(s.o.Now())
	cell, err := s.pack(ctx, place{"register/" + master, "", now}, job.Seal(now, data), inlineRow, 0,
		func() []byte { return nil }, len(data))
	if err != nil {
		return err
	}
	err = session.Query(insertRegister,
		registerKey(master), cell, s.o.Now().UnixMicro()).Consistency(s.writes).ExecContext(ctx)
	return s.fail(ctx, "write of registers", err)
}

// registerKey is never empty: a key of Cassandra cannot be.
func registerKey(master string) string { return "m" + master }

// LoadRegister gives the registers of a master.
func (s *Store) LoadRegister(ctx context.Context, master string) ([]byte, error) {
	session, err := s.session()
	if err != nil {
		return nil, err
	}
	notFound := fmt.Errorf("register of %q: %w", master, tiers.ErrNotFound)
	var cell []byte
	err = session.Query(selectRegister, registerKey(master)).Consistency(s.reads).
		ScanContext(ctx, &cell)
	if errors.Is(err, gocql.ErrNotFound) {
		return nil, notFound
	}
	if err != nil {
		return nil, s.fail(ctx, "read of registers", err)
	}
	var version job.Version
	if isManifest(cell) {
		m, err := decodeManifest(cell)
		if err != nil {
			s.dropCorrupt("registers", "", err)
			return nil, notFound
		}
		version = m.version
	}
	value, err := s.unpack(ctx, place{"register/" + master, "", version}, cell)
	if err == nil {
		_, value, err = job.Open(value)
	}
	if errors.Is(err, job.ErrCorrupt) {
		s.dropCorrupt("registers", "", err)
		return nil, notFound
	}
	return value, err
}
