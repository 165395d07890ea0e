package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/tinylib/msgp/msgp"

	"saltern/configs"
)

// backupManifest is the file that makes a folder a backup. It is written last.
const backupManifest = "saltern-backup.json"

type backupFile struct {
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

type backupContent struct {
	Version string                `json:"version"`
	Taken   time.Time             `json:"taken"`
	Files   map[string]backupFile `json:"files"`
}

// runBackup copies the store over Salt's side of the daemon, which freezes it meanwhile: the folder
// is written by this process, so the daemon needs no right to it.
func runBackup(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	flags := newFlags("backup", "DIR", stderr)
	address := flags.String("address", "", "of the daemon, unix:`PATH` or tcp:HOST:PORT")
	if err := parseFlags(flags, args, 1); err != nil {
		return err
	}
	dir := flags.Arg(0)
	if err := emptyFolder(dir); err != nil {
		return err
	}
	conn, err := dialRPC(ctx, *address)
	if err != nil {
		return err
	}
	defer conn.Close()
	id, files, err := beginBackup(ctx, conn)
	if err != nil {
		return err
	}
	defer func() {
		// The copy takes room on the daemon's disk once the store moves on.
		params := msgp.AppendString(msgp.AppendArrayHeader(nil, 1), id)
		_, e := conn.call(context.WithoutCancel(ctx), "backup_end", params)
		err = errors.Join(err, e)
	}()
	content := backupContent{Version: versionString(), Taken: time.Now().UTC(), Files: map[string]backupFile{}}
	total := int64(0)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		copied, err := copyFromDaemon(ctx, conn, id, name, filepath.Join(dir, name))
		if err != nil {
			return err
		}
		if copied.Bytes != files[name] {
			return fmt.Errorf("%s came with %d bytes instead of %d", name, copied.Bytes, files[name])
		}
		content.Files[name] = copied
		total += copied.Bytes
	}
	if err := writeManifest(dir, content); err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "backup of %d files, %d bytes, in %s; saltern restore %s --data-dir DIR makes a store of it\n",
		len(files), total, dir, dir)
	return err
}

// emptyFolder makes a private folder, or takes an empty one.
func emptyFolder(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return &ExitError{Code: ExitUsage, Err: err}
	}
	found, err := os.ReadDir(dir)
	if err != nil {
		return &ExitError{Code: ExitUsage, Err: err}
	}
	if len(found) > 0 {
		return usageError("%s is not empty: name a folder that is not there yet", dir)
	}
	return nil
}

func beginBackup(ctx context.Context, conn *rpcConn) (id string, files map[string]int64, err error) {
	result, err := conn.call(ctx, "backup_begin", msgp.AppendArrayHeader(nil, 0))
	if err != nil {
		return "", nil, err
	}
	value, _, err := msgp.ReadMapStrIntfBytes(result, nil)
	if err != nil {
		return "", nil, err
	}
	id, _ = value["id"].(string)
	sizes, _ := value["files"].(map[string]any)
	files = make(map[string]int64, len(sizes))
	for name, size := range sizes {
		n, ok := size.(int64)
		if !ok || !filepath.IsLocal(name) || filepath.Base(name) != name {
			return "", nil, fmt.Errorf("the daemon names a file %q", name)
		}
		files[name] = n
	}
	if id == "" || len(files) == 0 {
		return "", nil, errors.New("the daemon names no files: is it of this version?")
	}
	return id, files, nil
}

func copyFromDaemon(ctx context.Context, conn *rpcConn, id, name, path string) (backupFile, error) {
	return writeNew(path, func(w io.Writer) error {
		for offset := int64(0); ; {
			params := msgp.AppendString(msgp.AppendArrayHeader(nil, 3), id)
			params = msgp.AppendInt64(msgp.AppendString(params, name), offset)
			result, err := conn.call(ctx, "backup_read", params)
			if err != nil {
				return err
			}
			part, _, err := msgp.ReadBytesZC(result)
			if err != nil || len(part) == 0 {
				return err
			}
			if _, err := w.Write(part); err != nil {
				return err
			}
			offset += int64(len(part))
		}
	})
}

// writeNew writes a new private file, which is on the disk when it returns, and gives what is in it.
func writeNew(path string, write func(io.Writer) error) (backupFile, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return backupFile{}, err
	}
	sum, count := sha256.New(), &byteCount{}
	err = write(io.MultiWriter(f, sum, count))
	if err == nil {
		err = f.Sync()
	}
	return backupFile{Bytes: count.n, SHA256: hex.EncodeToString(sum.Sum(nil))}, errors.Join(err, f.Close())
}

type byteCount struct{ n int64 }

func (c *byteCount) Write(p []byte) (int, error) {
	c.n += int64(len(p))
	return len(p), nil
}

func writeManifest(dir string, content backupContent) error {
	b, err := json.MarshalIndent(content, "", "  ")
	if err != nil {
		return err
	}
	_, err = writeNew(filepath.Join(dir, backupManifest), func(w io.Writer) error {
		_, err := w.Write(append(b, '\n'))
		return err
	})
	return errors.Join(err, syncFolder(dir))
}

func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// runRestore makes the folder of a daemon that does not run of a backup, after checking every file.
func runRestore(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := newFlags("restore", "BACKUP", stderr)
	dataDir := flags.String("data-dir", "", "`DIR` of the store that is to be made; it must be empty or not there\n(default: as serve takes it)")
	if err := parseFlags(flags, args, 1); err != nil {
		return err
	}
	from := flags.Arg(0)
	content, err := readManifest(from)
	if err != nil {
		return err
	}
	to := *dataDir
	if to == "" {
		c := configs.Default()
		c.Resolve(configs.ProcessEnv())
		to = c.DataDir
	}
	if err := emptyFolder(to); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(content.Files)) {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if err := restoreFile(from, to, name, content.Files[name]); err != nil {
			return fmt.Errorf("%w; %s is of no use: remove it", err, to)
		}
	}
	if err := syncFolder(to); err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "%s is the store as of %s; give it to the user of the daemon (chown -R saltern: %s)\n",
		to, content.Taken.Local().Format(time.DateTime), to)
	return err
}

func readManifest(dir string) (backupContent, error) {
	var content backupContent
	b, err := os.ReadFile(filepath.Join(dir, backupManifest))
	if errors.Is(err, fs.ErrNotExist) {
		return content, usageError("%s is no complete backup: it has no %s", dir, backupManifest)
	}
	if err == nil {
		err = json.Unmarshal(b, &content)
	}
	if err != nil {
		return content, usageError("%s: %w", filepath.Join(dir, backupManifest), err)
	}
	for name := range content.Files {
		if !filepath.IsLocal(name) || filepath.Base(name) != name {
			return content, usageError("%s names a file %q", backupManifest, name)
		}
	}
	return content, nil
}

func restoreFile(from, to, name string, want backupFile) error {
	in, err := os.Open(filepath.Join(from, name))
	if err != nil {
		return err
	}
	defer in.Close()
	got, err := writeNew(filepath.Join(to, name), func(w io.Writer) error {
		_, err := io.Copy(w, in)
		return err
	})
	if err == nil && got != want {
		err = fmt.Errorf("%s is damaged: it is not what was backed up", filepath.Join(from, name))
	}
	return err
}
