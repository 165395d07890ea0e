package embedded

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"saltern/job"
	"saltern/tiers"
	"saltern/tiers/embedded/disk"
)

// formatVersion is the version of the key layout. A change that this code cannot read takes a new
// one; Open refuses what is newer.
const formatVersion = 1

// memTableBytes is the size of a memtable. There are up to four; Open after a crash reads as much log.
const memTableBytes = 8 << 20

// Store is the durable store of a single process.
//
// Lock order: expiring, gate, stripes in ascending order, the mutexes of classes and space.
type Store struct {
	o  Options
	db *disk.DB

	// expiring is held by the one Expire that runs.
	expiring sync.Mutex
	// gate keeps merges out while a chunk of expired jobs goes. A merge holds it for reading until
	// its batch is applied in memory, not until it is on the disk.
	gate    sync.RWMutex
	stripes stripes
	classes classes
	// waits are those for the disk whose callers may have gone.
	waits   sync.WaitGroup
	corrupt atomic.Uint64
	commits atomic.Uint64
	close   func() error
}

var _ tiers.Store = (*Store)(nil)

// Open opens the store in a folder, or makes it. The error says what to do where another process
// uses the folder, or a newer version wrote it.
func Open(o Options) (*Store, error) {
	o.setDefaults()
	s := &Store{o: o}
	s.close = sync.OnceValue(s.closeOnce)
	db, err := disk.Open(disk.Options{
		Dir: o.Dir, CacheBytes: o.CacheBytes, MemTableBytes: memTableBytes, Reserve: o.Reserve,
		Logger: o.Logger, OnFatal: o.OnFatal, FS: o.FS, Now: o.Now,
	})
	if err != nil {
		return nil, err
	}
	s.db = db
	if err := s.begin(); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return s, nil
}

// begin checks the format and reads the classes.
func (s *Store) begin() error {
	value, found, err := s.get(s.db, []byte{tabFormat})
	if err != nil {
		return err
	}
	if !found {
		b := []byte(strconv.Itoa(formatVersion))
		if err := s.db.Set([]byte{tabFormat}, b, pebble.Sync); err != nil {
			return fmt.Errorf("write the format version: %w", err)
		}
		return nil
	}
	v, err := strconv.Atoi(string(value))
	if err != nil || v > formatVersion {
		return fmt.Errorf("%s has format %q, this version of saltern reads up to %d: "+
			"run the version that wrote it, or take another data folder", s.o.Dir, value, formatVersion)
	}
	return s.scan(context.Background(), s.db, []byte{tabClass}, func(key, _ []byte) error {
		p, _ := parseSummaryKey(append(key, make([]byte, 8)...))
		s.classes.admit(p.class)
		return nil
	})
}

// Name is "embedded".
func (s *Store) Name() string { return "embedded" }

// Stats are figures for metrics.
type Stats struct {
	// Corrupt is how many stored values failed their check since Open.
	Corrupt uint64
	// DiskBytes is what the store takes on the disk.
	DiskBytes uint64
	// LogBytes is what was written to the log since Open, Commits how many batches, Fsyncs by how
	// many fsyncs they were made durable.
	LogBytes, Commits, Fsyncs uint64
}

// Stats gives the figures of now.
func (s *Store) Stats() Stats {
	m := s.db.Metrics()
	return Stats{
		Corrupt: s.corrupt.Load(), DiskBytes: m.DiskSpaceUsage(), LogBytes: m.WAL.BytesIn,
		Commits: s.commits.Load(), Fsyncs: s.db.LogSyncs(),
	}
}

// Close closes the store. After a fatal error it leaves the files as they are.
func (s *Store) Close() error { return s.close() }

func (s *Store) closeOnce() error {
	s.db.Stop()
	if s.db.Failed() == nil {
		s.waits.Wait()
	}
	return s.db.Close()
}

// ready says why a call cannot be served.
func (s *Store) ready(ctx context.Context) error {
	if err := s.db.Failed(); err != nil {
		return fmt.Errorf("%w: %w", tiers.ErrUnavailable, err)
	}
	return ctx.Err()
}

// dropCorrupt counts and logs a stored value that failed its check; it is then treated as missing.
func (s *Store) dropCorrupt(what byte, jid job.JID, err error) {
	s.corrupt.Add(1)
	s.o.Logger.Error("corrupt value in the store, treated as missing",
		"kind", string(rune(what)), "jid", string(jid), "err", err)
}
