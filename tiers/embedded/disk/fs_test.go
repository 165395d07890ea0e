package disk

import (
	"errors"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// When little space is left only the log and the memtables may have it.
func TestCompactionLeavesTheLastSpace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var low atomic.Bool
		fs := newFileSystem(vfs.NewMem(), func(err error) { t.Error(err) }, low.Load)
		write := func(name string, c vfs.DiskWriteCategory) error {
			f, err := fs.Create(name, c)
			if err != nil {
				return err
			}
			_, err = f.Write([]byte("x"))
			return errors.Join(err, f.Close())
		}
		steps := []struct {
			low      bool
			category vfs.DiskWriteCategory
			name     string
			want     error
			waits    time.Duration
		}{
			{false, "pebble-compaction", "1.sst", nil, 0},
			{true, "pebble-wal", "2.log", nil, 0},
			{true, "pebble-memtable-flush", "3.sst", nil, 0},
			{true, "pebble-compaction", "4.sst", errLowSpace, 0},
			{true, "pebble-compaction", "5.sst", errLowSpace, retryAfter}, // tried again, but not at once
			{true, "pebble-wal", "6.log", nil, 0},
			{false, "pebble-compaction", "7.sst", nil, retryAfter},
			{false, "pebble-compaction", "8.sst", nil, 0},
		}
		for _, s := range steps {
			low.Store(s.low)
			began := time.Now()
			if err := write(s.name, s.category); !errors.Is(err, s.want) {
				t.Errorf("%s of %s, low space %v: %v; want %v", s.name, s.category, s.low, err, s.want)
			}
			if took := time.Since(began); took != s.waits {
				t.Errorf("%s of %s, low space %v: waited %v; want %v", s.name, s.category, s.low, took, s.waits)
			}
		}
	})
}

// After one failed fsync no other is believed, of whatever file, and nothing more is written.
func TestFailedFsyncIsSticky(t *testing.T) {
	var failing atomic.Bool
	under := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if failing.Load() && op.Kind == errorfs.OpFileSync {
			return syscall.EIO
		}
		return nil
	}))
	told := 0
	fs := newFileSystem(under, func(error) { told++ }, func() bool { return false })
	var files []vfs.File
	for _, name := range []string{"1.sst", "2.log"} {
		f, err := fs.Create(name, vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	failing.Store(true)
	first := files[0].Sync()
	failing.Store(false)
	_, writeErr := files[1].Write([]byte("x"))
	for name, err := range map[string]error{
		"the failed fsync": first, "its repeat": files[0].Sync(), "fsync of another": files[1].SyncData(),
		"write of another": writeErr,
	} {
		if !errors.Is(err, syscall.EIO) {
			t.Errorf("%s = %v; want EIO", name, err)
		}
	}
	if told != 1 {
		t.Errorf("told of the failure %d times; want once", told)
	}
}
