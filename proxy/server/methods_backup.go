package server

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/tinylib/msgp/msgp"

	"saltern/tiers"
)

// Backup is a store that can be copied while it runs.
type Backup interface {
	// Checkpoint makes dir, which must not be there, a copy of the store as it is now: all that was
	// acknowledged is in it. It takes no room to speak of on the file system of the store.
	Checkpoint(dir string) error
	// CheckpointDir is the folder for copies, on the file system of the store. Whatever is in it is
	// of a backup.
	CheckpointDir() string
}

var errNoBackup = fmt.Errorf("%w: the store is not on this machine's own disk: back up Cassandra with its own tools", tiers.ErrInvalid)

// maxBackupRead bounds one answer of backup_read.
const maxBackupRead = 4 << 20

// backups is the one backup under way: a frozen copy that a client reads file by file, so that it can
// be written to where the daemon itself may not write.
type backups struct {
	mu  sync.Mutex // guards id, and the folder of copies
	id  string     // of the copy that is there, empty for none
	dir string
}

// backupBegin freezes a copy. One that a client left behind goes first.
func (s *RPC) backupBegin(_ context.Context, out []byte, _ *params) ([]byte, error) {
	if s.o.Backup == nil {
		return out, errNoBackup
	}
	s.backups.mu.Lock()
	defer s.backups.mu.Unlock()
	if err := s.clearBackups(); err != nil {
		return out, err
	}
	id := rand.Text()
	dir := filepath.Join(s.o.Backup.CheckpointDir(), id)
	if err := os.Mkdir(s.o.Backup.CheckpointDir(), 0o700); err != nil {
		return out, err
	}
	if err := s.o.Backup.Checkpoint(dir); err != nil {
		return out, errors.Join(err, s.clearBackups())
	}
	s.backups.id, s.backups.dir = id, dir
	s.o.Logger.Info("a backup begins")
	out = msgp.AppendMapHeader(out, 2)
	out = msgp.AppendString(msgp.AppendString(out, "id"), id)
	return appendFiles(msgp.AppendString(out, "files"), dir)
}

// appendFiles appends the files of a copy as a map of names to sizes.
func appendFiles(out []byte, dir string) ([]byte, error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return out, err
	}
	out = msgp.AppendMapHeader(out, uint32(len(files)))
	for _, f := range files {
		info, err := f.Info()
		if err != nil {
			return out, err
		}
		if !info.Mode().IsRegular() {
			return out, fmt.Errorf("%s is no file", f.Name())
		}
		out = msgp.AppendInt64(msgp.AppendString(out, f.Name()), info.Size())
	}
	return out, nil
}

// clearBackups removes all copies.
func (s *RPC) clearBackups() error {
	s.backups.id, s.backups.dir = "", ""
	return os.RemoveAll(s.o.Backup.CheckpointDir())
}

// backupRead gives a part of a file, empty at its end.
func (s *RPC) backupRead(_ context.Context, out []byte, p *params) ([]byte, error) {
	id, name, offset := p.str("id"), p.str("name"), param(p, "offset", msgp.ReadInt64Bytes)
	if err := p.done(); err != nil {
		return out, err
	}
	if s.o.Backup == nil {
		return out, errNoBackup
	}
	s.backups.mu.Lock()
	defer s.backups.mu.Unlock()
	if s.backups.id == "" || id != s.backups.id {
		return out, fmt.Errorf("%w: that backup is over, or another one was begun: begin again", tiers.ErrInvalid)
	}
	if name == "" || strings.ContainsAny(name, `/\`) || name[0] == '.' || offset < 0 {
		return out, fmt.Errorf("%w: no such file in the backup", tiers.ErrInvalid)
	}
	part, err := readPart(filepath.Join(s.backups.dir, name), offset)
	if errors.Is(err, fs.ErrNotExist) {
		return out, fmt.Errorf("%w: no such file in the backup", tiers.ErrInvalid)
	}
	if err != nil {
		return out, err
	}
	return msgp.AppendBytes(out, part), nil
}

func readPart(path string, offset int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.NewSectionReader(f, offset, maxBackupRead))
}

// backupEnd removes the copy.
func (s *RPC) backupEnd(_ context.Context, out []byte, p *params) ([]byte, error) {
	id := p.str("id")
	if err := p.done(); err != nil {
		return out, err
	}
	if s.o.Backup == nil {
		return out, errNoBackup
	}
	s.backups.mu.Lock()
	defer s.backups.mu.Unlock()
	if id == s.backups.id && id != "" {
		if err := s.clearBackups(); err != nil {
			return out, err
		}
		s.o.Logger.Info("a backup has ended")
	}
	return msgp.AppendBool(out, true), nil
}
