package embedded_test

import (
	"errors"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"saltern/job"
	"saltern/tiers"
	"saltern/tiers/embedded"
	"saltern/tiers/embedded/disk/disktest"
)

// The power fails many times while four writers write: whatever was acknowledged before is there
// afterwards, with none, some or all of what was not yet synced.
func TestCrashLosesNothingAcknowledged(t *testing.T) {
	const crashes, writers = 25, 4
	fs := vfs.NewCrashableMem()
	clk := &clock{at: start}
	random := rand.New(rand.NewPCG(1, 2))
	acknowledged := make(map[job.JID]bool)
	written := 0
	for crash := range crashes {
		s := open(t, embedded.Options{Dir: "a/b/store", FS: fs, Now: clk.now})
		checkAcknowledged(t, s, crash, acknowledged)
		var mu sync.Mutex // guards acknowledged, written
		var wg sync.WaitGroup
		var crashed *vfs.MemFS
		for range writers {
			wg.Go(func() {
				for range 10 {
					mu.Lock()
					written++
					jid := jidAt(start, written)
					crashNow := crashed == nil && random.IntN(30) == 0
					mu.Unlock()
					facts := append(publish(jid, job.KeepForever, "a"), returned(jid, "a"))
					if _, err := s.Merge(t.Context(), facts); err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					if crashed == nil {
						acknowledged[jid] = true
					}
					if crashNow && crashed == nil {
						percent := []int{0, 50, 100}[random.IntN(3)]
						crashed = fs.CrashClone(vfs.CrashCloneCfg{
							UnsyncedDataPercent: percent, RNG: rand.New(rand.NewPCG(uint64(crash), 3)),
						})
					}
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		if crashed == nil {
			crashed = fs.CrashClone(vfs.CrashCloneCfg{})
		}
		fs = crashed
	}
	if len(acknowledged) < crashes*5 {
		t.Errorf("only %d acknowledged writes in %d crashes", len(acknowledged), crashes)
	}
}

func checkAcknowledged(t *testing.T, s *embedded.Store, crash int, acknowledged map[job.JID]bool) {
	t.Helper()
	for jid := range acknowledged {
		h, err := s.Head(t.Context(), jid)
		if err != nil || h.Load == nil || len(h.Minions) != 1 {
			t.Fatalf("after crash %d: Head(%q) = %+v, %v; want the acknowledged job", crash, jid, h, err)
		}
		page, err := s.Returns(t.Context(), jid, tiers.ReturnQuery{})
		if err != nil || len(page.Returns) != 1 {
			t.Fatalf("after crash %d: Returns(%q) = %+v, %v; want one", crash, jid, page, err)
		}
	}
}

// A repeat of a fact that is visible, but not yet on the disk, is acknowledged only when it is.
func TestRepeatWaitsForTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := &slowSync{FS: vfs.NewMem(), gate: make(chan struct{})}
		s := open(t, embedded.Options{FS: fs})
		fs.slow.Store(true)
		fact := returned("20260301115900000000", "a")
		var answers atomic.Int32
		var first, second []job.Outcome
		go func() { first = merge(t, s, fact); answers.Add(1) }()
		synctest.Wait() // the first is in its fsync
		if _, err := s.Head(t.Context(), fact.JID); err != nil {
			t.Errorf("Head of a job whose fsync is under way = %v; want it to be visible", err)
		}
		go func() { second = merge(t, s, fact); answers.Add(1) }()
		synctest.Wait()
		if n := answers.Load(); n != 0 {
			t.Errorf("%d merges were answered before any fsync was done", n)
		}
		fs.slow.Store(false)
		close(fs.gate)
		synctest.Wait()
		if first[0] != job.Created || second[0] != job.Repeat {
			t.Errorf("outcomes %v and %v; want created and repeat", first, second)
		}
	})
}

// slowSync is a file system whose fsyncs of the log wait for the gate.
type slowSync struct {
	vfs.FS
	slow atomic.Bool
	gate chan struct{}
}

func (fs *slowSync) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.Create(name, c)
	return &slowFile{File: f, fs: fs}, err
}

func (fs *slowSync) Unwrap() vfs.FS { return fs.FS }

type slowFile struct {
	vfs.File
	fs *slowSync
}

func (f *slowFile) Sync() error     { f.wait(); return f.File.Sync() }
func (f *slowFile) SyncData() error { f.wait(); return f.File.SyncData() }

func (f *slowFile) wait() {
	if f.fs.slow.Load() {
		<-f.fs.gate
	}
}

func TestFailedFsyncIsFinal(t *testing.T) {
	var failing atomic.Bool
	broken := errorfs.InjectorFunc(func(op errorfs.Op) error {
		switch op.Kind {
		case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
			if failing.Load() {
				return syscall.EIO
			}
		}
		return nil
	})
	fs := vfs.NewCrashableMem()
	fatal := make(chan error, 2)
	s := open(t, embedded.Options{
		FS: errorfs.Wrap(fs, broken), OnFatal: func(err error) { fatal <- err },
	})
	merge(t, s, publish("good", job.KeepForever, "a")...)
	failing.Store(true)
	if _, err := s.Merge(t.Context(), publish("lost", job.KeepForever, "a")); !errors.Is(err, tiers.ErrUnavailable) {
		t.Errorf("Merge with a failing fsync = %v; want ErrUnavailable", err)
	}
	// The disk is well again: nobody knows what it dropped, so nothing is acknowledged any more.
	failing.Store(false)
	if _, err := s.Merge(t.Context(), publish("late", job.KeepForever, "a")); !errors.Is(err, tiers.ErrUnavailable) {
		t.Errorf("Merge after a failed fsync = %v; want ErrUnavailable", err)
	}
	if _, err := s.Head(t.Context(), "good"); !errors.Is(err, tiers.ErrUnavailable) {
		t.Errorf("Head after a failed fsync = %v; want ErrUnavailable", err)
	}
	if err := <-fatal; !errors.Is(err, syscall.EIO) {
		t.Errorf("OnFatal(%v); want EIO", err)
	}
	if len(fatal) != 0 {
		t.Errorf("OnFatal was called again with %v", <-fatal)
	}
	again := open(t, embedded.Options{FS: fs.CrashClone(vfs.CrashCloneCfg{})})
	if _, err := again.Head(t.Context(), "good"); err != nil {
		t.Errorf("after the restart: Head(good) = %v", err)
	}
}

func TestFailedWriteOfTheLogIsFinal(t *testing.T) {
	var failing atomic.Bool
	broken := errorfs.InjectorFunc(func(op errorfs.Op) error {
		if failing.Load() && op.Kind == errorfs.OpFileWrite && strings.HasSuffix(op.Path, ".log") {
			return syscall.ENOSPC
		}
		return nil
	})
	fatal := make(chan error, 2)
	s := open(t, embedded.Options{
		FS: errorfs.Wrap(vfs.NewMem(), broken), OnFatal: func(err error) { fatal <- err },
	})
	failing.Store(true)
	for range 3 {
		if _, err := s.Merge(t.Context(), publish("j", job.KeepForever, "a")); !errors.Is(err, tiers.ErrUnavailable) {
			t.Errorf("Merge with a failing log = %v; want ErrUnavailable", err)
		}
	}
	if err := <-fatal; !strings.Contains(err.Error(), syscall.ENOSPC.Error()) {
		t.Errorf("OnFatal(%v); want ENOSPC", err)
	}
	if len(fatal) != 0 {
		t.Errorf("OnFatal was called again with %v", <-fatal)
	}
}

func TestFullDiskRefusesWritesAndRecovers(t *testing.T) {
	clk := &clock{at: start}
	fs := disktest.New(1 << 29)
	s := open(t, embedded.Options{FS: fs, Now: clk.now})
	merge(t, s, publish("before", 3600, "a")...)

	// The default reserve is 64 MiB.
	fs.SetFree(64<<20 - 1)
	clk.advance(time.Second)
	for _, write := range []func() error{
		func() error { _, err := s.Merge(t.Context(), publish("full", 3600, "a")); return err },
		func() error { return s.SaveRegister(t.Context(), "m", []byte{0x80}) },
	} {
		if err := write(); !errors.Is(err, tiers.ErrFull) {
			t.Errorf("write to a full disk = %v; want ErrFull", err)
		}
	}
	if _, err := s.Head(t.Context(), "full"); !errors.Is(err, tiers.ErrNotFound) {
		t.Errorf("Head of a refused job = %v; want ErrNotFound", err)
	}
	if _, err := s.Head(t.Context(), "before"); err != nil {
		t.Errorf("Head with a full disk = %v", err)
	}
	// Removing what has passed its time makes room, so it still works.
	clk.advance(2 * time.Hour)
	if n, err := s.Expire(t.Context(), clk.now()); n != 1 || err != nil {
		t.Errorf("Expire with a full disk = %d, %v; want 1", n, err)
	}
	fs.SetFree(64<<20 + 1<<20)
	clk.advance(time.Second)
	merge(t, s, publish("after", 3600, "a")...)
}

// Between two looks at the disk what is written is counted.
func TestFullDiskCountsWhatIsWritten(t *testing.T) {
	clk := &clock{at: start}
	s := open(t, embedded.Options{FS: disktest.New(64<<20 + 100_000), Now: clk.now})
	big := returned("j", "a")
	big.Ret = make([]byte, 60_000)
	merge(t, s, big)
	big.JID = "k"
	if _, err := s.Merge(t.Context(), []job.Fact{big}); !errors.Is(err, tiers.ErrFull) {
		t.Errorf("Merge of more than fits = %v; want ErrFull", err)
	}
}

func TestLock(t *testing.T) {
	for name, o := range map[string]embedded.Options{
		"disk":   {Dir: t.TempDir()},
		"memory": {Dir: "store", FS: vfs.NewMem()},
	} {
		t.Run(name, func(t *testing.T) {
			open(t, o)
			_, err := embedded.Open(o)
			if err == nil || !strings.Contains(err.Error(), "another saltern uses "+o.Dir) {
				t.Errorf("second Open = %v; want it to say who uses the folder", err)
			}
		})
	}
}

func TestModes(t *testing.T) {
	dir := t.TempDir() + "/a/b"
	old := syscall.Umask(0)
	t.Cleanup(func() { syscall.Umask(old) })
	s := open(t, embedded.Options{Dir: dir})
	merge(t, s, publish("j", job.KeepForever, "a")...)
	for _, name := range []string{dir, dir + "/.."} {
		if mode := stat(t, name).Mode().Perm(); mode != 0o700 {
			t.Errorf("mode of %s = %o; want 700", name, mode)
		}
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if mode := stat(t, dir+"/"+f.Name()).Mode().Perm(); mode != 0o600 {
			t.Errorf("mode of %s = %o; want 600", f.Name(), mode)
		}
	}
	if len(files) < 4 {
		t.Errorf("%d files; want a log, a manifest, options and a lock at least", len(files))
	}
}

func stat(t *testing.T, name string) os.FileInfo {
	t.Helper()
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func TestNewerFormatIsRefused(t *testing.T) {
	fs := vfs.NewMem()
	s, err := embedded.Open(embedded.Options{Dir: "store", FS: fs})
	if err == nil {
		err = s.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	setRaw(t, fs, "V", []byte("2"))
	_, err = embedded.Open(embedded.Options{Dir: "store", FS: fs})
	if err == nil || !strings.Contains(err.Error(), `format "2"`) {
		t.Errorf("Open of a newer format = %v; want it refused by its number", err)
	}
}

// setRaw changes a value under the store, which is closed.
func setRaw(t *testing.T, fs vfs.FS, key string, value []byte) {
	t.Helper()
	db := openRaw(t, fs)
	if err := errors.Join(db.Set([]byte(key), value, pebble.Sync), db.Close()); err != nil {
		t.Fatal(err)
	}
}
