package embedded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"

	"saltern/job"
	"saltern/tiers"
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
	o     Options
	db    *pebble.DB
	lock  *pebble.Lock
	fs    *fileSystem
	space *space

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
	fatal   atomic.Pointer[error]
	close   func() error
}

var _ tiers.Store = (*Store)(nil)

// Open opens the store in a folder, or makes it. The error says what to do where another process
// uses the folder, or a newer version wrote it.
func Open(o Options) (*Store, error) {
	o.setDefaults()
	s := &Store{o: o}
	s.close = sync.OnceValue(s.closeOnce)
	s.space = &space{
		usage: func() (vfs.DiskUsage, error) { return o.FS.GetDiskUsage(o.Dir) },
		now:   o.Now, reserve: o.Reserve,
	}
	s.fs = newFileSystem(o.FS, s.fail, s.space.low)
	if err := s.lockDir(); err != nil {
		return nil, err
	}
	if err := s.open(); err != nil {
		return nil, errors.Join(err, s.lock.Close())
	}
	return s, nil
}

func (s *Store) lockDir() error {
	dir := s.o.Dir
	if dir == "" {
		return errors.New("the store has no folder: name one")
	}
	if err := s.fs.makeDir(dir); err != nil {
		return fmt.Errorf("make the store's private folder: %w", err)
	}
	lock, err := pebble.LockDirectory(dir, s.fs)
	switch {
	case err == nil:
		s.lock = lock
		return nil
	case isHeld(err):
		return fmt.Errorf("another saltern uses %s: stop it, or take another data folder (%w)", dir, err)
	default:
		return fmt.Errorf("lock the store: %w", err)
	}
}

// isHeld says whether a lock was refused because it is held: by another process, which is EAGAIN, or
// by this one, which only pebble knows.
func isHeld(err error) bool {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno == syscall.EAGAIN
	}
	return !errors.As(err, new(*os.PathError))
}

func (s *Store) open() error {
	// Pebble counts its memtables, of which two are usually in use, into the cache: without room for
	// them nothing would be cached.
	cache := pebble.NewCache(s.o.CacheBytes + 2*memTableBytes)
	defer cache.Unref()
	db, err := pebble.Open(s.o.Dir, s.pebbleOptions(cache))
	if err != nil {
		return fmt.Errorf("open the store in %s: %w", s.o.Dir, err)
	}
	s.db = db
	if err := s.begin(); err != nil {
		return errors.Join(err, db.Close())
	}
	return nil
}

// pebbleOptions are chosen for few files and little memory: 10 million keys of a million jobs are
// then some 30 files.
func (s *Store) pebbleOptions(cache *pebble.Cache) *pebble.Options {
	log := pebbleLogger{s}
	o := &pebble.Options{
		FS: s.fs, Lock: s.lock, Cache: cache, Logger: log,
		FormatMajorVersion:          pebble.FormatTableFormatV6,
		MemTableSize:                memTableBytes,
		MemTableStopWritesThreshold: 4,
		L0CompactionThreshold:       4,
		L0StopWritesThreshold:       24,
		LBaseMaxBytes:               64 << 20,
		MaxOpenFiles:                500,
		MaxManifestFileSize:         4 << 20,
		// Space of expired jobs comes back without further writes.
		FlushDelayDeleteRange:      10 * time.Second,
		CompactionConcurrencyRange: func() (int, int) { return 1, 2 },
		EventListener: &pebble.EventListener{
			BackgroundError: func(err error) { log.Errorf("background work: %v", err) },
		},
	}
	o.TargetFileSizes[0] = memTableBytes
	for i := range o.Levels {
		o.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
		o.Levels[i].BlockSize = 16 << 10
		if i > 0 {
			o.TargetFileSizes[i] = 64 << 20
		}
	}
	o.ApplyCompressionSettings(func() pebble.DBCompressionSettings { return pebble.DBCompressionFastest })
	o.Experimental.FileCacheShards = 2
	return o
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
		Commits: s.commits.Load(), Fsyncs: s.fs.logSyncs.Load(),
	}
}

// Close closes the store. After a fatal error it leaves the files as they are.
func (s *Store) Close() error { return s.close() }

func (s *Store) closeOnce() error {
	s.fs.stop()
	if err := s.fatal.Load(); err != nil {
		return *err
	}
	s.waits.Wait()
	return errors.Join(s.db.Close(), s.lock.Close())
}

// ready says why a call cannot be served.
func (s *Store) ready(ctx context.Context) error {
	if err := s.fatal.Load(); err != nil {
		return fmt.Errorf("%w: %w", tiers.ErrUnavailable, *err)
	}
	return ctx.Err()
}

// fail is called when it is not known what is on the disk.
func (s *Store) fail(err error) {
	if !s.fatal.CompareAndSwap(nil, &err) {
		return
	}
	s.o.Logger.Error("the store cannot write, stopping: see to the disk, then start again", "err", err)
	if s.o.OnFatal == nil {
		os.Exit(ExitCode)
	}
	s.o.OnFatal(err)
}

// dropCorrupt counts and logs a stored value that failed its check; it is then treated as missing.
func (s *Store) dropCorrupt(what byte, jid job.JID, err error) {
	s.corrupt.Add(1)
	s.o.Logger.Error("corrupt value in the store, treated as missing",
		"kind", string(rune(what)), "jid", string(jid), "err", err)
}

// pebbleLogger takes what pebble says. Its account of flushes and compactions is left out.
type pebbleLogger struct{ s *Store }

func (l pebbleLogger) Infof(string, ...any) {}

func (l pebbleLogger) Errorf(format string, args ...any) {
	l.s.o.Logger.Warn("store", "err", fmt.Sprintf(format, args...))
}

// Fatalf is called when the log or the manifest could not be written.
func (l pebbleLogger) Fatalf(format string, args ...any) {
	l.s.fail(fmt.Errorf(format, args...))
}
