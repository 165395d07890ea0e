package journal_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"saltern/job"
	"saltern/proxy/journal"
	"saltern/tiers"
	"saltern/tiers/embedded/disk/disktest"
)

// P2 of the fault matrix: after loss of power, with any part of what was not synced gone, all that
// was acknowledged is there.
func TestLossOfPower(t *testing.T) {
	for _, survives := range []int{0, 50, 100} {
		t.Run(fmt.Sprintf("%d percent of the unsynced", survives), func(t *testing.T) {
			fs := vfs.NewCrashableMem()
			r := newRemote(t)
			r.set(errAway)
			s := open(t, journal.Options{Under: r, FS: fs, Dir: "journal"})
			var mu sync.Mutex
			acked := map[job.JID]bool{}
			var writers sync.WaitGroup
			for range 16 {
				writers.Go(func() {
					for range 20 {
						jid := newJID()
						if _, err := s.Merge(t.Context(), append(publish(jid, "alpha"), ret(jid, "alpha", 1))); err != nil {
							t.Errorf("write: %v", err)
							return
						}
						mu.Lock()
						acked[jid] = true
						mu.Unlock()
					}
				})
			}
			mu.Lock()
			before := len(acked)
			mu.Unlock()
			crashed := fs.CrashClone(vfs.CrashCloneCfg{
				UnsyncedDataPercent: survives, RNG: rand.New(rand.NewPCG(1, uint64(survives))),
			})
			writers.Wait()
			whole := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: survives, RNG: rand.New(rand.NewPCG(2, 2))})

			r.set(nil)
			early := open(t, journal.Options{Under: newRemote(t), FS: crashed, Dir: "journal"})
			if n := early.Status().Entries; n < before {
				t.Errorf("%d entries after the early crash, %d were acknowledged before it", n, before)
			}
			store := newRemote(t)
			late := open(t, journal.Options{Under: store, FS: whole, Dir: "journal"})
			drained(t, late)
			for jid := range acked {
				wantJob(t, store, jid, map[job.Minion]byte{"alpha": 1})
			}
		})
	}
}

// P4: after a failed fsync nothing is acknowledged by the log any more, and the process is told to
// end; what the store takes is acknowledged all the same.
func TestFailedFsync(t *testing.T) {
	fails := errorfs.Toggle{Injector: errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData {
			return syscall.EIO
		}
		return nil
	})}
	fatal := make(chan error, 4)
	r := newRemote(t)
	s, err := journal.Open(journal.Options{
		Under: r, Dir: "journal", FS: errorfs.Wrap(vfs.NewMem(), &fails), OnFatal: func(err error) { fatal <- err },
	})
	if err != nil {
		t.Fatal(err)
	}
	merge(t, s, publish(newJID(), "alpha")...)
	r.set(errAway)
	fails.On()
	if _, err := s.Merge(t.Context(), publish(newJID(), "alpha")); !errors.Is(err, tiers.ErrUnavailable) {
		t.Errorf("acknowledged without a fsync: %v", err)
	}
	if err := <-fatal; !errors.Is(err, syscall.EIO) {
		t.Errorf("told of %v", err)
	}
	fails.Off()
	if _, err := s.Merge(t.Context(), publish(newJID(), "alpha")); !errors.Is(err, tiers.ErrUnavailable) {
		t.Errorf("acknowledged after a failed fsync: %v", err)
	}
	r.set(nil)
	merge(t, s, publish(newJID(), "alpha")...)
	if err := s.Close(); err == nil {
		t.Error("closed as if nothing had happened")
	}
	if len(fatal) != 0 {
		t.Error("told again")
	}
}

// P6: near the end of the disk the log refuses, and takes again as soon as there is room.
func TestFullDisk(t *testing.T) {
	disk := disktest.New(1 << 30)
	r := newRemote(t)
	s := open(t, journal.Options{Under: r, Dir: "journal", FS: disk, Reserve: 1 << 20, Now: fastClock()})
	r.set(errAway)
	merge(t, s, publish(newJID(), "alpha")...)
	disk.SetFree(1000)
	if _, err := s.Merge(t.Context(), publish(newJID(), "alpha")); !errors.Is(err, tiers.ErrFull) ||
		strings.Contains(err.Error(), "\n") {
		t.Errorf("on a full disk: %v", err)
	}
	if st := s.Status(); st.Entries != 1 {
		t.Errorf("what was refused waits: %+v", st)
	}
	disk.SetFree(1 << 30)
	merge(t, s, publish(newJID(), "alpha")...)
	r.set(nil)
	drained(t, s)
}

func TestOneProcessOneJournal(t *testing.T) {
	dir := t.TempDir()
	open(t, journal.Options{Under: newRemote(t), Dir: dir})
	_, err := journal.Open(journal.Options{Under: newRemote(t), Dir: dir})
	if err == nil || !strings.Contains(err.Error(), "another saltern uses") {
		t.Errorf("a second one opened the journal: %v", err)
	}
}
