// Package disk opens pebble the way that is needed where nothing acknowledged may be lost: in a
// private folder of one process, with room kept free on the disk, few files and little memory, and
// the first failed fsync the last.
package disk

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Options of a DB. Dir is required; a zero field takes the default named.
type Options struct {
	// Dir is the folder, made where it is missing. It belongs to the DB alone.
	Dir string
	// CacheBytes bounds the memory for blocks read from the disk; default 1 MiB.
	CacheBytes int64
	// MemTableBytes is the size of a memtable, of which two are usually in use; default 4 MiB.
	MemTableBytes uint64
	// Reserve is the free disk space in bytes below which Take refuses; default 64 MiB, or a quarter
	// of the file system where that is less.
	Reserve int64
	// Logger is told what no caller is; default slog.Default().
	Logger *slog.Logger
	// OnFatal is called once, after a failed fsync or a failed write of the log: what is on the disk
	// is then not known, and the process must end, with ExitCode. The default ends it at once.
	// Should OnFatal return, Failed says why nothing works any more.
	OnFatal func(error)
	// FS is the file system; default vfs.Default.
	FS vfs.FS
	// Now is the clock; default time.Now.
	Now func() time.Time
}

const (
	defaultCacheBytes    = 1 << 20
	defaultMemTableBytes = 4 << 20
	defaultReserve       = 64 << 20

	// ExitCode is the exit code after a fatal error: EX_IOERR of sysexits.h.
	ExitCode = 74
)

func (o *Options) setDefaults() {
	o.CacheBytes = cmp.Or(o.CacheBytes, defaultCacheBytes)
	o.MemTableBytes = cmp.Or(o.MemTableBytes, defaultMemTableBytes)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	if o.FS == nil {
		o.FS = vfs.Default
	}
	if o.Now == nil {
		o.Now = time.Now
	}
}

// DB is a pebble store and what watches over its disk.
type DB struct {
	*pebble.DB
	o     Options
	fs    *fileSystem
	space *space
	lock  *pebble.Lock
	fatal atomic.Pointer[error]
	close func() error
}

// Open opens the store in a folder, or makes it. The error says what to do where another process
// uses the folder.
func Open(o Options) (*DB, error) {
	o.setDefaults()
	d := &DB{o: o}
	d.close = sync.OnceValue(d.closeOnce)
	d.space = &space{
		usage: func() (vfs.DiskUsage, error) { return o.FS.GetDiskUsage(o.Dir) },
		now:   o.Now, reserve: o.Reserve,
	}
	d.fs = newFileSystem(o.FS, d.Fail, d.space.low)
	if err := d.lockDir(); err != nil {
		return nil, err
	}
	// Pebble counts its memtables into the cache: without room for them nothing would be cached.
	cache := pebble.NewCache(o.CacheBytes + 2*int64(o.MemTableBytes))
	defer cache.Unref()
	db, err := pebble.Open(o.Dir, d.pebbleOptions(cache))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the store in %s: %w", o.Dir, err), d.lock.Close())
	}
	d.DB = db
	return d, nil
}

func (d *DB) lockDir() error {
	dir := d.o.Dir
	if dir == "" {
		return errors.New("the store has no folder: name one")
	}
	if err := d.fs.makeDir(dir); err != nil {
		return fmt.Errorf("make the store's private folder: %w", err)
	}
	lock, err := pebble.LockDirectory(dir, d.fs)
	switch {
	case err == nil:
		d.lock = lock
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

// pebbleOptions are chosen for few files and little memory: 10 million keys of a million jobs are
// then some 30 files.
func (d *DB) pebbleOptions(cache *pebble.Cache) *pebble.Options {
	log := pebbleLogger{d}
	o := &pebble.Options{
		FS: d.fs, Lock: d.lock, Cache: cache, Logger: log,
		FormatMajorVersion:          pebble.FormatTableFormatV6,
		MemTableSize:                d.o.MemTableBytes,
		MemTableStopWritesThreshold: 4,
		L0CompactionThreshold:       4,
		L0StopWritesThreshold:       24,
		LBaseMaxBytes:               64 << 20,
		MaxOpenFiles:                500,
		MaxManifestFileSize:         4 << 20,
		// Space of what a range deletion covered comes back without further writes.
		FlushDelayDeleteRange:      10 * time.Second,
		CompactionConcurrencyRange: func() (int, int) { return 1, 2 },
		EventListener: &pebble.EventListener{
			BackgroundError: func(err error) { log.Errorf("background work: %v", err) },
		},
	}
	o.TargetFileSizes[0] = int64(d.o.MemTableBytes)
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

// Take counts bytes that are to be written, or refuses them with tiers.ErrFull. part is the share of
// the reserve that is to stay free: 1 for data, less for what makes room.
func (d *DB) Take(n int64, part float64) error { return d.space.take(n, part) }

// Failed is the error after which nothing works any more, nil as long as there is none.
func (d *DB) Failed() error {
	if err := d.fatal.Load(); err != nil {
		return *err
	}
	return nil
}

// LogSyncs is how many fsyncs of the log there were since Open.
func (d *DB) LogSyncs() uint64 { return d.fs.logSyncs.Load() }

// Stop ends the pauses that failed tables make; calls that wait for them go on. Close does it too.
func (d *DB) Stop() { d.fs.stop() }

// Close closes the store. After a fatal error it leaves the files as they are. Further calls do
// nothing.
func (d *DB) Close() error { return d.close() }

func (d *DB) closeOnce() error {
	d.fs.stop()
	if err := d.Failed(); err != nil {
		return err
	}
	return errors.Join(d.DB.Close(), d.lock.Close())
}

// Fail is for who learns that it is not known what is on the disk: of a panic or an error of the log.
func (d *DB) Fail(err error) {
	if !d.fatal.CompareAndSwap(nil, &err) {
		return
	}
	d.o.Logger.Error("the store cannot write, stopping: see to the disk, then start again", "err", err)
	if d.o.OnFatal == nil {
		os.Exit(ExitCode)
	}
	d.o.OnFatal(err)
}

// Guard makes a change of the store. Pebble panics when it cannot write the log, and cannot be used
// any more then; other fatal errors come back here where OnFatal returns.
func (d *DB) Guard(change func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			d.Fail(fmt.Errorf("write of the log: %v", p))
			err = d.Failed()
		}
	}()
	if err := change(); err != nil {
		return err
	}
	return d.Failed()
}

// pebbleLogger takes what pebble says. Its account of flushes and compactions is left out.
type pebbleLogger struct{ d *DB }

func (l pebbleLogger) Infof(string, ...any) {}

func (l pebbleLogger) Errorf(format string, args ...any) {
	l.d.o.Logger.Warn("store", "err", fmt.Sprintf(format, args...))
}

// Fatalf is called when the log or the manifest could not be written.
func (l pebbleLogger) Fatalf(format string, args ...any) {
	l.d.Fail(fmt.Errorf(format, args...))
}
