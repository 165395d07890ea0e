package server

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestListenUnix(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "s.sock") // the folder is made
	l, err := Listen("unix:"+path, 0o660, "")
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o660 || info.Mode().Type() != os.ModeSocket {
		t.Errorf("the socket is %v; want one of mode 0660", info.Mode())
	}
	if others, _ := os.ReadDir(filepath.Dir(path)); len(others) != 1 {
		t.Errorf("the folder of the socket has %v", others)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("after Close the socket is still there: %v", err)
	}
}

func TestListenReplacesAStaleSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.sock")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	_ = dead.Close()
	l, err := Listen("unix:"+path, 0o600, "")
	if err != nil {
		t.Fatalf("a socket without a listener is not replaced: %v", err)
	}
	defer l.Close()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
}

func TestListenRefusesWhatIsNotItsOwn(t *testing.T) {
	dir := t.TempDir()
	refused := func(path, want string) {
		t.Helper()
		l, err := Listen("unix:"+path, 0o660, "")
		if err == nil {
			_ = l.Close()
			t.Fatalf("%s is taken", path)
		}
		if !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%v; want the path and %q", err, want)
		}
	}

	served := filepath.Join(dir, "served")
	l, err := Listen("unix:"+served, 0o660, "")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	refused(served, "another process serves this socket")
	if c, err := net.Dial("unix", served); err != nil {
		t.Errorf("the socket that is served was damaged: %v", err)
	} else {
		_ = c.Close()
	}

	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	refused(file, "no socket; move it away")
	if b, _ := os.ReadFile(file); string(b) != "precious" {
		t.Errorf("the file is now %q", b)
	}

	link := filepath.Join(dir, "link")
	if err := os.Symlink(served, link); err != nil {
		t.Fatal(err)
	}
	refused(link, "no socket; move it away")

	refused(filepath.Join(dir, strings.Repeat("x", 107)), "the path of a socket may have 107 bytes, this one has")
}

func TestListenRefusesASocketOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a file away")
	}
	path := filepath.Join(t.TempDir(), "s.sock")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	_ = dead.Close()
	if err := os.Chown(path, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	if l, err := Listen("unix:"+path, 0o660, ""); err == nil {
		_ = l.Close()
		t.Fatal("a socket of another user is taken")
	} else if !strings.Contains(err.Error(), "another user") {
		t.Error(err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("the socket of another user is gone: %v", err)
	}
}

func TestListenNamesWhatIsWrong(t *testing.T) {
	dir := t.TempDir()
	for address, want := range map[string]string{
		"tcp:127.0.0.1:99999": "tcp:127.0.0.1:99999",
		"http://localhost":    "unix:PATH or tcp:HOST:PORT is needed",
		"/run/s.sock":         "unix:PATH or tcp:HOST:PORT is needed",
		"unix:/dev/null/s":    "/dev/null",
	} {
		if l, err := Listen(address, 0o660, ""); err == nil {
			_ = l.Close()
			t.Errorf("Listen(%q) works", address)
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("Listen(%q): %v; want %q in it", address, err, want)
		}
	}
	path := filepath.Join(dir, "s.sock")
	if l, err := Listen("unix:"+path, 0o660, "no-such-group"); err == nil {
		_ = l.Close()
		t.Error("a group that does not exist is taken")
	} else if !strings.Contains(err.Error(), "no-such-group") {
		t.Error(err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("a Listen that failed left %v", left)
	}
}

func TestListenTCP(t *testing.T) {
	l, err := Listen("tcp:127.0.0.1:0", 0, "")
	if err != nil {
		t.Fatal(err)
	}
	s := NewRPC(RPCOptions{Jobs: newShelf(), Logger: quiet()})
	s.Serve(l)
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	newCaller(t, c).want(`true`, "ping")
	if err := s.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}
