package move

import (
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/tinylib/msgp/msgp"

	"saltern/job"
)

// hashes are Salt's hash_types.
var hashes = map[string]func() hash.Hash{
	"sha256": sha256.New, "md5": md5.New, "sha1": sha1.New, "sha224": sha256.New224, "sha384": sha512.New384,
	"sha512": sha512.New,
}

// Folder writes jobs as local_cache does, so that local_cache reads them. What is there stays: a load,
// a return. Lists of minions are united. Files are written under another name first, as local_cache
// itself does, so a master may use the folder at the same time.
type Folder struct {
	dir      string
	hash     func() hash.Hash
	uid, gid int // the owner of what is written, -1 for the process's own
}

// NewFolder takes a cachedir, in which the folder jobs is made, or that folder; hashType is the
// master's hash_type. Where root writes, the files belong to the owner of dir.
func NewFolder(dir, hashType string) (*Folder, error) {
	h := hashes[hashType]
	if h == nil {
		return nil, fmt.Errorf("%q is no hash_type of Salt", hashType)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return nil, err
	}
	f := &Folder{dir: dir, hash: h, uid: -1, gid: -1}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && os.Geteuid() == 0 {
		f.uid, f.gid = int(stat.Uid), int(stat.Gid)
	}
	if filepath.Base(dir) == "jobs" {
		return f, nil
	}
	f.dir = filepath.Join(dir, "jobs")
	return f, f.mkdir(f.dir)
}

// jobDir is salt.utils.jid.jid_dir.
func (f *Folder) jobDir(jid job.JID) string {
	h := f.hash()
	_, _ = h.Write([]byte(jid)) // a hash takes everything
	sum := hex.EncodeToString(h.Sum(nil))
	return filepath.Join(f.dir, sum[:2], sum[2:])
}

func (f *Folder) mkdir(dir string) error {
	err := os.Mkdir(dir, 0o755)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil || f.uid < 0 {
		return err
	}
	return os.Chown(dir, f.uid, f.gid)
}

// Job writes all of a job but its returns. load is nil, or a packed map.
func (f *Folder) Job(jid job.JID, load []byte, minions []job.Minion, endTime string) error {
	dir := f.jobDir(jid)
	if err := errors.Join(f.mkdir(filepath.Dir(dir)), f.mkdir(dir)); err != nil {
		return err
	}
	if load != nil {
		if err := f.write(filepath.Join(dir, fileLoad), load); err != nil {
			return err
		}
	}
	if len(minions) > 0 {
		if err := f.unite(filepath.Join(dir, fileMinions), minions); err != nil {
			return err
		}
	}
	if endTime != "" {
		if err := f.write(filepath.Join(dir, fileEndTime), []byte(endTime)); err != nil {
			return err
		}
	}
	// clean_old_jobs removes a job whose file jid is too old, and one without such a file at once.
	path := filepath.Join(dir, fileJID)
	if err := f.write(path, []byte(jid)); err != nil {
		return err
	}
	if at, ok := jid.Time(); ok {
		return os.Chtimes(path, at, at)
	}
	return nil
}

// unite writes a list of minions, together with those that are in the file already.
func (f *Folder) unite(path string, minions []job.Minion) error {
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	all := job.UnionMinions(minions)
	if checkPacked(old) == nil {
		all = job.UnionMinions(all, minionsOf(old))
		if slices.Equal(all, minionsOf(old)) {
			return nil
		}
	}
	b := msgp.AppendArrayHeader(nil, uint32(len(all)))
	for _, id := range all {
		b = msgp.AppendString(b, string(id))
	}
	return f.replace(path, b)
}

// ErrNoFolder is a minion whose id cannot be the name of a folder.
var ErrNoFolder = errors.New("the id of the minion cannot be the name of a folder")

// Return writes what local_cache keeps of a return, a packed map, and says whether it was new. The
// job comes first.
func (f *Folder) Return(jid job.JID, minion job.Minion, packed []byte) (isNew bool, err error) {
	id := string(minion)
	if id == "" || id[0] == '.' || strings.ContainsAny(id, "/\x00") {
		return false, ErrNoFolder
	}
	dir := filepath.Join(f.jobDir(jid), id)
	if err := f.mkdir(dir); err != nil {
		return false, err
	}
	path := filepath.Join(dir, fileReturn)
	if _, err := os.Lstat(path); err == nil {
		return false, nil
	}
	all := entries(packed)
	var kept []entry
	for _, key := range []string{"return", "retcode", "success"} {
		if value := find(all, key); value != nil {
			kept = append(kept, entry{stringKey(key), value})
		}
	}
	if out := find(all, "out"); out != nil {
		if err := f.write(filepath.Join(dir, fileOut), out); err != nil {
			return false, err
		}
	}
	return true, f.write(path, join(kept))
}

// write writes a file that is not there yet.
func (f *Folder) write(path string, content []byte) error {
	if _, err := os.Lstat(path); err == nil {
		return nil
	}
	return f.replace(path, content)
}

func (f *Folder) replace(path string, content []byte) error {
	draft, err := os.CreateTemp(filepath.Dir(path), ".saltern-")
	if err != nil {
		return err
	}
	_, err = draft.Write(content)
	if err == nil && f.uid >= 0 {
		err = draft.Chown(f.uid, f.gid)
	}
	if err = errors.Join(err, draft.Close()); err == nil {
		err = os.Rename(draft.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(draft.Name()))
	}
	return nil
}
