package server

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// maxSocketPath is the longest path of a Unix socket on Linux.
const maxSocketPath = 107

// Listen opens an RPC listener: `unix:PATH` or `tcp:HOST:PORT`. A Unix socket gets mode, and group
// if one is given. A socket that a dead daemon left behind is replaced; anything else that is in
// the place is refused.
func Listen(address string, mode fs.FileMode, group string) (net.Listener, error) {
	network, addr, _ := strings.Cut(address, ":")
	switch network {
	case "unix":
		return listenUnix(addr, mode, group)
	case "tcp":
		l, err := net.Listen("tcp", addr)
		if err != nil {
			return nil, fmt.Errorf("listen on %s: %w", address, err)
		}
		return l, nil
	default:
		return nil, fmt.Errorf("listen on %q: unix:PATH or tcp:HOST:PORT is needed", address)
	}
}

func listenUnix(path string, mode fs.FileMode, group string) (net.Listener, error) {
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("listen on %q: the path of a socket may have %d bytes, this one has %d",
			path, maxSocketPath, len(path))
	}
	if err := removeStale(path); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return nil, fmt.Errorf("folder of the socket: %w", err)
	}
	// The socket is made under another name, given its mode and group, and only then moved to where
	// clients look: at no time can somebody connect who may not.
	made := fmt.Sprintf("%s.%d", path, os.Getpid())
	if len(made) > maxSocketPath {
		made = filepath.Join(filepath.Dir(path), strconv.Itoa(os.Getpid()))
	}
	_ = os.Remove(made)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: made, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen on %q: %w", path, err)
	}
	l.SetUnlinkOnClose(false)
	if err := place(made, path, mode, group); err != nil {
		_ = l.Close()
		_ = os.Remove(made)
		return nil, err
	}
	return &unixListener{UnixListener: l, path: path}, nil
}

func place(made, path string, mode fs.FileMode, group string) error {
	if group != "" {
		g, err := user.LookupGroup(group)
		if err != nil {
			return fmt.Errorf("group of the socket: %w", err)
		}
		gid, err := strconv.Atoi(g.Gid)
		if err != nil {
			return fmt.Errorf("group of the socket: %w", err)
		}
		if err := os.Chown(made, -1, gid); err != nil {
			return fmt.Errorf("group of the socket: %w", err)
		}
	}
	if err := os.Chmod(made, mode); err != nil {
		return fmt.Errorf("mode of the socket: %w", err)
	}
	if err := os.Rename(made, path); err != nil {
		return fmt.Errorf("place the socket: %w", err)
	}
	return nil
}

// removeStale makes room for a socket. Only a socket of our own, on which nobody listens, goes.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look at the socket: %w", err)
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("listen on %q: there is something that is no socket; move it away", path)
	}
	if !ownedByUs(info) {
		return fmt.Errorf("listen on %q: there is a socket of another user; remove it", path)
	}
	c, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		_ = c.Close()
		return fmt.Errorf("listen on %q: another process serves this socket", path)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("remove a stale socket: %w", err)
	}
	return nil
}

// unixListener removes its socket when it is closed, under the name that it was moved to.
type unixListener struct {
	*net.UnixListener
	path string
}

// Close stops listening.
func (l *unixListener) Close() error {
	err := l.UnixListener.Close()
	_ = os.Remove(l.path)
	return err
}
