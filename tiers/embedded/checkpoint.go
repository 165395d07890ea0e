package embedded

import (
	"fmt"
	"path/filepath"

	"github.com/cockroachdb/pebble/v2"
)

// checkpointDir is the folder for checkpoints within that of the store.
const checkpointDir = "checkpoints"

// CheckpointDir is a folder on the file system of the store, where Checkpoint takes no room to speak
// of. Open does not look into it.
func (s *Store) CheckpointDir() string { return filepath.Join(s.o.Dir, checkpointDir) }

// Checkpoint makes dir, which must not be there and whose parent must, a store as this one is now,
// that Open takes. All that was acknowledged is in it. Tables are linked, not copied, where dir is
// on the same file system; only the log is copied.
func (s *Store) Checkpoint(dir string) error {
	if err := s.db.Failed(); err != nil {
		return unavailable(err)
	}
	// The copy of the log counts: what room is left is for writes.
	if err := s.db.Take(int64(2*memTableBytes), 1); err != nil {
		return err
	}
	if err := s.db.Checkpoint(dir, pebble.WithFlushedWAL()); err != nil {
		return unavailable(fmt.Errorf("checkpoint: %w", err))
	}
	return nil
}
