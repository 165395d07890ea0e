package move

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"saltern/job"
)

// Names of local_cache's files (salt/returners/local_cache.py). A job's folder is the hash of its jid, two
// digits of it and then the rest; a return's folder is the id of its minion.
const (
	fileJID     = "jid"
	fileLoad    = ".load.p"
	fileMinions = ".minions.p"
	fileReturn  = "return.p"
	fileOut     = "out.p"
	fileEndTime = "endtime"
	fileNoCache = "nocache"
)

// LocalCache reads the folder of local_cache, while a master may be writing there.
type LocalCache struct{ dir string }

// OpenLocalCache takes the master's cachedir or the folder jobs in it.
func OpenLocalCache(dir string) (*LocalCache, error) {
	if info, err := os.Stat(filepath.Join(dir, "jobs")); err == nil && info.IsDir() {
		dir = filepath.Join(dir, "jobs")
	}
	if info, err := os.Stat(dir); err != nil {
		return nil, err
	} else if !info.IsDir() {
		return nil, fmt.Errorf("%s is no folder: name the master's cachedir, as /var/cache/salt/master", dir)
	}
	return &LocalCache{dir: dir}, nil
}

// Close does nothing.
func (*LocalCache) Close() error { return nil }

// Each implements Source, in the order of the folders' names. A cursor is the path of a job's folder.
func (c *LocalCache) Each(ctx context.Context, o Options, take func(Item) error) error {
	tops, err := os.ReadDir(c.dir)
	if err != nil {
		return err
	}
	for _, top := range tops {
		if !top.IsDir() || top.Name() < topOf(o.After) {
			continue
		}
		jobs, err := os.ReadDir(filepath.Join(c.dir, top.Name()))
		if err != nil {
			if !errors.Is(err, fs.ErrNotExist) {
				o.Bad(top.Name(), err)
			}
			continue
		}
		for _, j := range jobs {
			path := top.Name() + "/" + j.Name()
			if !j.IsDir() || path <= o.After {
				continue
			}
			if err := ctx.Err(); err != nil {
				return context.Cause(ctx)
			}
			if err := c.job(path, o, take); err != nil {
				return err
			}
		}
	}
	return nil
}

func topOf(path string) string { top, _, _ := strings.Cut(path, "/"); return top }

// job reads one job's folder.
func (c *LocalCache) job(path string, o Options, take func(Item) error) error {
	r := &jobFolder{c: c, path: path, o: o, part: part{take: take}}
	jid, load, err := r.identify()
	if errors.Is(err, fs.ErrNotExist) || (err == nil && jid == "") {
		return nil // the master has removed it meanwhile, or not yet begun it
	}
	if err != nil {
		o.Bad(filepath.Join(c.dir, path), err)
		return nil
	}
	if err := r.head(jid, load); err != nil {
		return err
	}
	if err := r.returns(jid, text(find(entries(load), "fun"))); err != nil {
		return err
	}
	return r.part.flush(path)
}

// jobFolder is the reading of one job.
type jobFolder struct {
	c    *LocalCache
	path string // below the folder of all jobs
	o    Options
	part part
}

func (r *jobFolder) file(names ...string) string {
	return filepath.Join(append([]string{r.c.dir, filepath.FromSlash(r.path)}, names...)...)
}

// identify gives the jid of the job and its load, nil where that is not there or cannot be read. Only the
// hash of a jid is in the name of its folder.
func (r *jobFolder) identify() (job.JID, []byte, error) {
	load, err := r.packed(fileLoad)
	if err != nil {
		r.o.Bad(r.file(fileLoad), err)
		load = nil
	}
	written, err := os.ReadFile(r.file(fileJID))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", nil, err
	}
	jid := string(written)
	if jid == "" {
		jid = text(find(entries(load), "jid"))
	}
	if jid != "" && !validID(jid, job.MaxJIDBytes) {
		return "", nil, fmt.Errorf("%q is no jid", jid)
	}
	return job.JID(jid), load, nil
}

// packed reads a file with a packed value; nil where there is none.
func (r *jobFolder) packed(names ...string) ([]byte, error) {
	b, err := os.ReadFile(r.file(names...))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return b, checkPacked(b)
}

// changed is when a file was last written.
func (r *jobFolder) changed(otherwise time.Time, names ...string) time.Time {
	info, err := os.Stat(r.file(names...))
	if err != nil {
		return otherwise
	}
	return info.ModTime()
}

// head reads all but the returns.
func (r *jobFolder) head(jid job.JID, packed []byte) error {
	at := timeOf(jid, r.changed(time.Now(), fileLoad))
	lists := r.minions(jid, at, fileMinions)
	if packed != nil {
		l, err := loadOf(jid, packed, len(lists) > 0, at, r.o)
		if err != nil {
			r.o.Bad(r.file(fileLoad), err)
		} else if err := r.part.add(l); err != nil {
			return err
		}
	}
	if err := r.part.add(lists...); err != nil {
		return err
	}
	if _, err := os.Stat(r.file(fileNoCache)); err == nil {
		if err := r.part.add(job.NoCache{JID: jid, Version: Version(at), Keep: r.o.Keep}); err != nil {
			return err
		}
	}
	ended, err := os.ReadFile(r.file(fileEndTime))
	if err != nil {
		return nil // most jobs have none
	}
	return r.part.add(job.EndTime{
		JID: jid, Version: Version(r.changed(at, fileEndTime)), Keep: r.o.Keep,
		Text: strings.ToValidUTF8(strings.Trim(string(ended), "\n"), "\ufffd"),
	})
}

// minions reads a list of minions: the master's, or that of a syndic.
func (r *jobFolder) minions(jid job.JID, at time.Time, name string) []job.Fact {
	list, err := r.packed(name)
	if err != nil {
		r.o.Bad(r.file(name), err)
		return nil
	}
	if list == nil {
		return nil
	}
	syndic := strings.TrimPrefix(strings.TrimSuffix(strings.TrimPrefix(name, ".minions"), ".p"), ".")
	return []job.Fact{job.Minions{
		JID: jid, Version: Version(at), IDs: minionsOf(list), Keep: r.o.Keep, Syndic: syndic,
	}}
}

func isSyndicList(name string) bool {
	return name != fileMinions && strings.HasPrefix(name, ".minions.") && strings.HasSuffix(name, ".p")
}

// returns reads what is a folder or file of its own for each minion or syndic.
func (r *jobFolder) returns(jid job.JID, fun string) error {
	dir, err := os.Open(r.file())
	if err != nil {
		return nil // the master has removed it meanwhile
	}
	defer dir.Close()
	for {
		// A few at a time: a job may have 60,000 minions.
		some, err := dir.ReadDir(500)
		for _, d := range some {
			if isSyndicList(d.Name()) {
				if err := r.part.add(r.minions(jid, timeOf(jid, time.Now()), d.Name())...); err != nil {
					return err
				}
			}
			if !d.IsDir() || strings.HasPrefix(d.Name(), ".") {
				continue
			}
			if err := r.giveBack(jid, d.Name(), fun); err != nil {
				return err
			}
		}
		if err != nil { // the end, or the folder is gone
			return nil
		}
	}
}

// giveBack reads a return. What is no map with a return is the result alone, an older form of the file.
func (r *jobFolder) giveBack(jid job.JID, minion, fun string) error {
	packed, err := r.packed(minion, fileReturn)
	if err == nil && packed == nil {
		return nil // the minion is just returning
	}
	if err == nil && !validID(minion, job.MaxMinionBytes) {
		err = errors.New("its folder is no id of a minion")
	}
	var out []byte
	if err == nil {
		out, err = r.packed(minion, fileOut)
	}
	if err != nil {
		r.o.Bad(r.file(minion), err)
		return nil
	}
	all := entries(packed)
	if find(all, "return") == nil {
		all = []entry{{stringKey("return"), packed}}
	}
	if out != nil {
		all = append(all, entry{stringKey("out"), out})
	}
	ret, err := returnOf(jid, job.Minion(minion), join(all), fun, r.changed(time.Now(), minion, fileReturn), r.o)
	if err != nil {
		r.o.Bad(r.file(minion, fileReturn), err)
		return nil
	}
	return r.part.add(ret)
}
