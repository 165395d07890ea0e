package disk

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// fileSystem is what pebble writes through. It keeps files to their owner, and holds three rules:
//
//   - A failed fsync is final. The kernel may have dropped the pages and call the next fsync of the
//     file a success, so after the first failure no write and no fsync of any file succeeds. The
//     store learns of it here, whichever file it was.
//   - A compaction does not take the last free space: that is for the log and the memtables, whose
//     failure would stop the process. The compaction fails and is tried again.
//   - Pebble tries failed work again at once and for ever. A table is therefore only begun some time
//     after the last one failed.
type fileSystem struct {
	vfs.FS
	onDisk bool
	// syncFailed is told of the first failed fsync.
	syncFailed func(error)
	// low says whether free space is too low for a compaction.
	low    func() bool
	failed atomic.Pointer[error]
	// tableFailed is whether the last write of a table failed.
	tableFailed atomic.Bool
	closing     chan struct{}
	stopping    sync.Once
	// logSyncs counts fsyncs of the log.
	logSyncs atomic.Uint64
}

func newFileSystem(under vfs.FS, syncFailed func(error), low func() bool) *fileSystem {
	return &fileSystem{
		FS: under, onDisk: vfs.Root(under) == vfs.Default, syncFailed: syncFailed, low: low,
		closing: make(chan struct{}),
	}
}

// Unwrap lets pebble find the file system at the bottom.
func (fs *fileSystem) Unwrap() vfs.FS { return fs.FS }

func (fs *fileSystem) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if strings.HasSuffix(name, tableSuffix) {
		fs.pause()
	}
	f, err := fs.FS.Create(name, c)
	return fs.private(f, name, c, err)
}

const (
	tableSuffix = ".sst"
	logSuffix   = ".log"

	// retryAfter is how long no table is begun after one failed.
	retryAfter = time.Second
)

// pause waits after a failed table.
func (fs *fileSystem) pause() {
	if !fs.tableFailed.Swap(false) {
		return
	}
	wait := time.NewTimer(retryAfter)
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-fs.closing:
	}
}

// stop ends the waiting.
func (fs *fileSystem) stop() { fs.stopping.Do(func() { close(fs.closing) }) }

func (fs *fileSystem) OpenReadWrite(
	name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption,
) (vfs.File, error) {
	f, err := fs.FS.OpenReadWrite(name, c, opts...)
	return fs.private(f, name, c, err)
}

func (fs *fileSystem) ReuseForWrite(
	oldName, newName string, c vfs.DiskWriteCategory,
) (vfs.File, error) {
	f, err := fs.FS.ReuseForWrite(oldName, newName, c)
	return fs.private(f, newName, c, err)
}

// OpenDir opens a folder, which is opened only to be fsynced.
func (fs *fileSystem) OpenDir(name string) (vfs.File, error) {
	f, err := fs.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return &file{File: f, fs: fs, name: name}, nil
}

// MkdirAll makes folders that only their owner may enter.
func (fs *fileSystem) MkdirAll(dir string, _ os.FileMode) error {
	return fs.FS.MkdirAll(dir, 0o700)
}

// makeDir makes a folder and those that it is in, and syncs what the new ones are in: without that
// the power could take the folder away with all that was acknowledged in it.
func (fs *fileSystem) makeDir(dir string) error {
	var changed []string
	for d := dir; ; d = fs.PathDir(d) {
		if _, err := fs.Stat(d); err == nil {
			break
		} else if !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if fs.PathDir(d) == d {
			break
		}
		changed = append(changed, fs.PathDir(d))
	}
	if err := fs.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for _, d := range changed {
		f, err := fs.OpenDir(d)
		if err != nil {
			return err
		}
		if err := errors.Join(f.Sync(), f.Close()); err != nil {
			return err
		}
	}
	return fs.chmod(dir, 0o700)
}

// Lock locks a file and makes it private.
func (fs *fileSystem) Lock(name string) (io.Closer, error) {
	l, err := fs.FS.Lock(name)
	if err != nil {
		return nil, err
	}
	if err := fs.chmod(name, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func (fs *fileSystem) chmod(name string, mode os.FileMode) error {
	if !fs.onDisk {
		return nil
	}
	return os.Chmod(name, mode)
}

// private makes a file that was opened for writing its owner's alone. The folder is private before
// any file is in it, so nobody can open the file before that.
func (fs *fileSystem) private(
	f vfs.File, name string, c vfs.DiskWriteCategory, err error,
) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	if err := fs.chmod(name, 0o600); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	isCompaction := strings.Contains(string(c), "compaction")
	return &file{File: f, fs: fs, name: name, isCompaction: isCompaction}, nil
}

// fail notes a failed fsync.
func (fs *fileSystem) fail(name string, err error) error {
	if err == nil {
		return nil
	}
	err = fmt.Errorf("fsync of %s: %w", name, err)
	if fs.failed.CompareAndSwap(nil, &err) {
		fs.syncFailed(err)
	}
	return err
}

// file is a file that pebble writes, or a folder that it fsyncs.
type file struct {
	vfs.File
	fs           *fileSystem
	name         string
	isCompaction bool
}

func (f *file) Write(p []byte) (int, error) {
	n, err := f.write(p)
	if err != nil && strings.HasSuffix(f.name, tableSuffix) {
		f.fs.tableFailed.Store(true)
	}
	return n, err
}

func (f *file) write(p []byte) (int, error) {
	if err := f.fs.failed.Load(); err != nil {
		return 0, *err
	}
	if f.isCompaction && f.fs.low() {
		return 0, fmt.Errorf("write %s: %w", f.name, errLowSpace)
	}
	return f.File.Write(p)
}

func (f *file) Sync() error { return f.sync(f.File.Sync) }

func (f *file) SyncData() error { return f.sync(f.File.SyncData) }

func (f *file) SyncTo(length int64) (fullSync bool, err error) {
	err = f.sync(func() error {
		fullSync, err = f.File.SyncTo(length)
		return err
	})
	return fullSync, err
}

func (f *file) sync(sync func() error) error {
	if err := f.fs.failed.Load(); err != nil {
		return *err
	}
	if strings.HasSuffix(f.name, logSuffix) {
		f.fs.logSyncs.Add(1)
	}
	return f.fs.fail(f.name, sync())
}
