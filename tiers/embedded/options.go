package embedded

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"saltern/tiers/embedded/disk"
)

// Options of a Store. The zero value of each field but Dir takes the default named.
type Options struct {
	// Dir is the folder of the store, made where it is missing. It belongs to the store alone.
	Dir string
	// CacheBytes bounds the memory for blocks read from the disk; default 32 MiB. The
	// store takes about 50 MiB more.
	CacheBytes int64
	// Reserve is the free disk space in bytes below which writes are refused with tiers.ErrFull;
	// default 64 MiB, or a quarter of the file system where that is less.
	Reserve int64
	// DefaultKeep is how long jobs are kept of which no fact says it; default 24 h.
	DefaultKeep time.Duration
	// EventKeep is how long events are kept; default 168 h.
	EventKeep time.Duration
	// Logger is told what no caller is; default slog.Default().
	Logger *slog.Logger
	// OnFatal is called once, after a failed fsync or a failed write of the log: what is on the disk
	// is then not known, and the process must end, with exit code 74 (EX_IOERR). The default ends it
	// at once. Should OnFatal return, the store refuses every call from then on.
	OnFatal func(error)
	// FS is the file system; default vfs.Default.
	FS vfs.FS
	// Now is the clock; default time.Now.
	Now func() time.Time
}

const (
	defaultCacheBytes  = 32 << 20
	defaultDefaultKeep = 24 * time.Hour
	defaultEventKeep   = 168 * time.Hour

	// ExitCode is the exit code after a fatal error: EX_IOERR of sysexits.h.
	ExitCode = disk.ExitCode
)

func (o *Options) setDefaults() {
	o.CacheBytes = cmp.Or(o.CacheBytes, defaultCacheBytes)
	o.DefaultKeep = cmp.Or(o.DefaultKeep, defaultDefaultKeep)
	o.EventKeep = cmp.Or(o.EventKeep, defaultEventKeep)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	if o.FS == nil {
		o.FS = vfs.Default
	}
	if o.Now == nil {
		o.Now = time.Now
	}
}
