package cli

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"saltern/configs"
)

// checkDataDir looks at the folder of the embedded store and at the space on its disk.
func (d *doctor) checkDataDir() {
	const check = "data"
	if d.config == nil {
		d.skipped(check, "the configuration does not say where it is")
		return
	}
	dir := d.config.DataDir
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		d.skipped(check, "there is no %s; the daemon makes it when it starts", dir)
		return
	case err != nil:
		d.skipped(check, "%v (run doctor as root)", err)
		return
	case !info.IsDir():
		d.fail(check, "move it away, or set data-dir in the configuration", "%s is no folder", dir)
		return
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		d.warn(check, "chmod 0700 "+dir, "%s has mode %04o: others can read what minions returned", dir, mode)
	}
	d.checkSpace(dir)
}

// roomFactor is how many times the reserve should be free before it is worth a warning.
const roomFactor = 4

func (d *doctor) checkSpace(dir string) {
	const check = "disk"
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		d.skipped(check, "the free space of %s: %v", dir, err)
		return
	}
	free := configs.Size(fs.Bavail) * configs.Size(fs.Bsize)
	reserve := d.config.Embedded.Reserve
	const remedy = "free some space, shorten keep_jobs_seconds, or move data-dir to a larger disk"
	switch {
	case free < reserve:
		d.fail(check, remedy, "%s has %s free, less than embedded.reserve (%v): writes are refused", dir, rounded(free), reserve)
	case free < roomFactor*reserve:
		d.warn(check, remedy, "%s has %s free; below %v writes are refused", dir, rounded(free), reserve)
	default:
		d.ok(check, "%s has %s free", dir, rounded(free))
	}
}

// rounded is a size for people.
func rounded(s configs.Size) string {
	unit := configs.MiB
	if s >= 10*configs.GiB {
		unit = configs.GiB
	}
	return (s / unit * unit).String()
}

const usualSpool = "/var/spool/saltern"

// freshSpool is how old what waits in the spool may be while it is no sign of trouble: the next
// call of Salt sends it.
const freshSpool = time.Minute

// checkSpool counts what waits on Salt's side for Saltern to come back.
func (d *doctor) checkSpool() {
	const check = "spool"
	dir := usualSpool
	if d.master != nil {
		if set := d.master.ours("spool_dir"); set != "" {
			dir = set
		}
	}
	s, err := measureSpool(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		d.ok(check, "there is no %s: nothing ever waited", dir)
	case err != nil:
		d.skipped(check, "%v (run doctor as root)", err)
	case s.lost > 0:
		d.fail(check, "see that the handshake above is ok, raise saltern.spool_max in the master's configuration",
			"the spool %s is full, and %d requests were lost", dir, s.lost)
	case s.bytes == 0:
		d.ok(check, "nothing waits in %s", dir)
	case d.now().Sub(s.oldest) < freshSpool:
		d.ok(check, "%d bytes in %d files of %s wait to be sent, for less than %v", s.bytes, s.files, dir, freshSpool)
	default:
		d.warn(check, "see that the handshake above is ok; then the next job drains it (salt '*' test.ping)",
			"%d bytes in %d files of %s wait to be sent, the oldest since %s",
			s.bytes, s.files, dir, s.oldest.Local().Format(time.DateTime))
	}
}

// spool is what waits below a folder.
type spool struct {
	files  int
	bytes  int64
	oldest time.Time // of the last changes of the files
	lost   int64     // requests that found the spool full
}

// measureSpool looks through the spools of all roles and users below a folder. Their files are the
// returner's: *.seg hold requests, full has a byte for each that was lost.
func measureSpool(dir string) (spool, error) {
	var s spool
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		segment, full := strings.HasSuffix(path, ".seg"), e.Name() == "full" || strings.HasSuffix(path, "-full")
		if !e.Type().IsRegular() || !segment && !full {
			return nil
		}
		info, err := e.Info()
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // just sent
		case err != nil:
			return err
		case full:
			s.lost += info.Size()
		default:
			s.add(info)
		}
		return nil
	})
	return s, err
}

func (s *spool) add(segment fs.FileInfo) {
	s.files++
	s.bytes += segment.Size()
	if s.oldest.IsZero() || segment.ModTime().Before(s.oldest) {
		s.oldest = segment.ModTime()
	}
}
