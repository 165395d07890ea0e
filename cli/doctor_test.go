package cli_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"saltern/cli"
)

// setup is a fabricated machine: a master's configuration and what it names, below one folder.
type setup struct {
	dir, salt string
	daemon    *running
}

// healthy is a set-up in which nothing is wrong, around a real daemon.
func healthy(t *testing.T, r *running) *setup {
	dir, err := os.MkdirTemp("", "sc") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := &setup{dir: dir, salt: filepath.Join(dir, "etc"), daemon: r}
	s.put(t, "etc/master", "root_dir: "+dir+"\n")
	s.put(t, "etc/master.d/saltern.conf", `master_job_cache: saltern
event_return: [saltern]
returner_dirs: [`+dir+`/returners]
saltern: {address: "unix:`+r.socket+`", spool_dir: `+dir+`/spool}
`)
	s.put(t, "returners/saltern.py", "__version__ = \"0.1.0\"\n__virtualname__ = \"saltern\"\n")
	s.put(t, "saltern.yaml", "data-dir: "+r.dir+"/data\nlisten: [\"unix:"+r.socket+"\"]\nhttp: "+r.http+
		"\nembedded: {reserve: 16MiB}\n")
	// No Salt of this machine may get into the picture.
	t.Setenv("PATH", filepath.Join(dir, "bin"))
	t.Setenv("VIRTUAL_ENV", "")
	return s
}

// chmod changes a mode until the test ends.
func chmod(t *testing.T, path string, mode, back os.FileMode) {
	t.Helper()
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Chmod(path, back) })
}

func (s *setup) put(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

type finding struct{ Check, Status, Detail, Remedy string }

type copyOfReturner struct {
	For, Path, Version, From string
	Used                     bool
}

type report struct {
	OK        bool
	Checks    []finding
	Returners []copyOfReturner
}

// examine runs doctor --json, and sees to it that the exit code and the remedies fit.
func (s *setup) examine(t *testing.T, flags ...string) report {
	t.Helper()
	args := append([]string{"doctor", "--json", "--config", filepath.Join(s.dir, "saltern.yaml"), "--salt-config", s.salt}, flags...)
	out := saltern(t, args...)
	var r report
	out.json(t, &r)
	failed := false
	for _, f := range r.Checks {
		failed = failed || f.Status == "fail"
		if (f.Status == "fail" || f.Status == "warn") != (f.Remedy != "") || strings.Contains(f.Remedy, "\n") {
			t.Errorf("a remedy in one line belongs to what is wrong, and to that alone: %+v", f)
		}
	}
	if r.OK == failed || (out.code == cli.ExitOK) == failed {
		t.Errorf("exit code %d, ok %v, and a check that fails: %v", out.code, r.OK, failed)
	}
	return r
}

// want checks that a finding with a status is there, and has the parts in its detail or remedy.
func (r report) want(t *testing.T, check, status string, parts ...string) {
	t.Helper()
	i := slices.IndexFunc(r.Checks, func(f finding) bool {
		text := f.Detail + "\n" + f.Remedy
		return f.Check == check && f.Status == status &&
			!slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(text, p) })
	})
	if i < 0 {
		t.Errorf("no %s of %s with %q among %+v", status, check, parts, r.Checks)
	}
}

func TestDoctorFindsNothingWrong(t *testing.T) {
	s := healthy(t, serve(t))
	r := s.examine(t)
	if !r.OK {
		t.Errorf("not ok: %+v", r.Checks)
	}
	for _, check := range []string{"config", "salt", "returner", "socket", "handshake", "http", "clock", "disk", "spool"} {
		r.want(t, check, "ok")
	}
	text := saltern(t, "doctor", "--config", filepath.Join(s.dir, "saltern.yaml"), "--salt-config", s.salt).
		wantCode(t, cli.ExitOK).stdout
	wantContains(t, text, "ok       handshake", "master  yes   0.1.0    returner_dirs", "0 wrong")
}

func TestDoctorFindsWhatIsWrong(t *testing.T) {
	r := serve(t)
	for name, c := range map[string]struct {
		spoil  func(t *testing.T, s *setup)
		check  string
		status string
		parts  []string
	}{
		"configuration with unknown keys": {func(t *testing.T, s *setup) {
			s.put(t, "saltern.yaml", "no-such-key: 1\n")
		}, "config", "fail", []string{"no-such-key", "all-options.yaml"}},
		"master that does not use Saltern": {func(t *testing.T, s *setup) {
			s.put(t, "etc/master.d/saltern.conf", "master_job_cache: local_cache\n")
		}, "salt", "fail", []string{"master_job_cache: saltern"}},
		"events that are not kept": {func(t *testing.T, s *setup) {
			s.put(t, "etc/master.d/zz.conf", "event_return: ''\n")
		}, "salt", "warn", []string{"events are not kept"}},
		"ext_job_cache": {func(t *testing.T, s *setup) {
			s.put(t, "etc/master.d/zz.conf", "master_job_cache: local_cache\next_job_cache: saltern\n")
		}, "salt", "ok", []string{"ext_job_cache", "stay in local_cache"}},
		"master's configuration that is no YAML": {func(t *testing.T, s *setup) {
			s.put(t, "etc/master.d/zz.conf", "a: [\n")
		}, "salt", "fail", []string{"zz.conf"}},
		"key that stands twice": {func(t *testing.T, s *setup) {
			s.put(t, "etc/master.d/zz.conf", "user: root\nuser: root\n")
		}, "salt", "warn", []string{"user in", "zz.conf", "twice"}},
		"no Salt": {func(t *testing.T, s *setup) {
			s.salt = filepath.Join(s.dir, "nowhere")
		}, "salt", "skipped", []string{"--salt-config"}},
		"another address": {func(t *testing.T, s *setup) {
			s.put(t, "etc/master.d/zz.conf", "saltern: {address: 'unix:/nowhere/s.sock'}\n")
		}, "address", "warn", []string{"/nowhere/s.sock", "listen"}},
		"no socket": {func(t *testing.T, s *setup) {
			s.put(t, "etc/master.d/zz.conf", "saltern: {address: 'unix:/nowhere/s.sock'}\n")
		}, "socket", "fail", []string{"there is no /nowhere/s.sock", "saltern serve"}},
		"something that is no socket": {func(t *testing.T, s *setup) {
			file := s.put(t, "file", "")
			s.put(t, "etc/master.d/zz.conf", "saltern: {address: 'unix:"+file+"'}\n")
		}, "socket", "fail", []string{"no socket", "move it away"}},
		"socket that anybody may use": {func(t *testing.T, s *setup) {
			chmod(t, s.daemon.socket, 0o666, 0o660)
		}, "socket", "warn", []string{"0666", "socket-mode"}},
		"socket of another group": {func(t *testing.T, s *setup) {
			s.put(t, "etc/master.d/zz.conf", "user: nobody\n")
		}, "socket", "fail", []string{"nobody", "socket-group"}},
		"stale socket": {func(t *testing.T, s *setup) {
			path := filepath.Join(s.dir, "stale")
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
			if err != nil {
				t.Fatal(err)
			}
			l.SetUnlinkOnClose(false)
			l.Close()
			s.put(t, "etc/master.d/zz.conf", "saltern: {address: 'unix:"+path+"'}\n")
		}, "handshake", "fail", []string{"not running"}},
		"socket of something else": {func(t *testing.T, s *setup) {
			s.put(t, "etc/master.d/zz.conf", "saltern: {address: '"+answering(t, s, "HTTP/1.1 400 Bad Request")+"'}\n")
		}, "handshake", "fail", []string{"does not answer as Saltern"}},
		"daemon of another protocol": {func(t *testing.T, s *setup) {
			s.put(t, "etc/master.d/zz.conf", "saltern: {address: '"+
				answering(t, s, "\x94\x01\x01\x92\xabunsupported\xa4text\xc0")+"'}\n")
		}, "handshake", "fail", []string{"unsupported: text"}},
		"daemon of another version": {func(t *testing.T, s *setup) {
			s.put(t, "etc/master.d/zz.conf", "saltern: {address: '"+
				answering(t, s, "\x94\x01\x01\xc0\x82\xa7version\xa57.0.0\xa8protocol\x01")+"'}\n")
		}, "handshake", "warn", []string{"7.0.0"}},
		"returner of another major version": {func(t *testing.T, s *setup) {
			s.put(t, "etc/master.d/zz.conf", "saltern: {address: '"+
				answering(t, s, "\x94\x01\x01\xc0\x82\xa7version\xa57.0.0\xa8protocol\x01")+"'}\n")
		}, "versions", "fail", []string{"0.1.0", "7.0.0"}},
		"HTTP that does not answer": {func(t *testing.T, s *setup) {
			t.Setenv("SALTERN_HTTP", "127.0.0.1:1")
		}, "http", "fail", []string{"127.0.0.1:1"}},
		"HTTP that is not ready": {func(t *testing.T, s *setup) {
			t.Setenv("SALTERN_HTTP", answeringHTTP(t, http.StatusServiceUnavailable, time.Now()))
		}, "http", "fail", []string{"503"}},
		"clocks that differ": {func(t *testing.T, s *setup) {
			t.Setenv("SALTERN_HTTP", answeringHTTP(t, http.StatusOK, time.Now().Add(-time.Minute)))
		}, "clock", "warn", []string{"apart", "chrony"}},
		"no returner": {func(t *testing.T, s *setup) {
			os.Remove(filepath.Join(s.dir, "returners/saltern.py"))
		}, "returner", "fail", []string{"finds no returner", "returner_dirs"}},
		"folder of returners that is not there": {func(t *testing.T, s *setup) {
			s.put(t, "etc/master.d/zz.conf", "returner_dirs: [/nowhere/at/all]\n")
		}, "returner", "warn", []string{"/nowhere/at/all"}},
		"older copy in front": {func(t *testing.T, s *setup) {
			s.put(t, "var/cache/salt/master/extmods/returners/saltern.py", "__version__ = '0.0.9'\n")
		}, "returner", "warn", []string{"0.0.9 in use", "0.1.0"}},
		"data that others can read": {func(t *testing.T, s *setup) {
			chmod(t, filepath.Join(s.daemon.dir, "data"), 0o755, 0o700)
		}, "data", "warn", []string{"chmod 0700"}},
		"disk below the reserve": {func(t *testing.T, s *setup) {
			file := filepath.Join(s.dir, "saltern.yaml")
			text, _ := os.ReadFile(file)
			s.put(t, "saltern.yaml", strings.Replace(string(text), "16MiB", "16TiB", 1))
		}, "disk", "fail", []string{"writes are refused"}},
		"writes that wait": {func(t *testing.T, s *setup) {
			file := s.put(t, "spool/master/00000001-1.seg", "requests")
			old := time.Now().Add(-time.Hour)
			if err := os.Chtimes(file, old, old); err != nil {
				t.Fatal(err)
			}
		}, "spool", "warn", []string{"8 bytes in 1 files"}},
		"writes that were lost": {func(t *testing.T, s *setup) {
			s.put(t, "spool/master/full", "...")
		}, "spool", "fail", []string{"3 requests were lost"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := healthy(t, r)
			c.spoil(t, s)
			s.examine(t).want(t, c.check, c.status, c.parts...)
		})
	}
}

// answering is the address of a server that answers anything with the same bytes.
func answering(t *testing.T, s *setup, answer string) string {
	t.Helper()
	path := filepath.Join(s.dir, "other.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 1024))
			_, _ = c.Write([]byte(answer))
			c.Close()
		}
	}()
	return "unix:" + path
}

func answeringHTTP(t *testing.T, status int, date time.Time) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", date.UTC().Format(http.TimeFormat))
		w.WriteHeader(status)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// Most copies are put before those that were there, so each becomes the one in use. Held against the
// loaders of Salt 3008.4 and 3006.29 when this was written.
func TestDoctorListsReturnersInTheOrderOfSaltsLoader(t *testing.T) {
	s := healthy(t, serve(t))
	site := "venv/lib/python3.11/site-packages/"
	if err := os.Chmod(s.put(t, "venv/bin/salt-master", "#!"+s.dir+"/venv/bin/python3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", filepath.Join(s.dir, "venv/bin"))
	s.put(t, "etc/master.d/zz.conf", "returner_dirs: ['"+s.dir+"/more']\nfile_roots: {base: ['"+s.dir+"/srv']}\n")
	os.Remove(filepath.Join(s.dir, "returners/saltern.py"))
	s.put(t, site+"salt/_version.txt", "3008.4\n")

	s.put(t, "srv/_returners/saltern.py", "__version__ = '0.6'\n")
	s.wantUsed(t, "")
	s.put(t, site+"saltext/saltern/returners/saltern.py", "__version__ = '0.5'\n")
	s.wantUsed(t, "") // without an entry point Salt does not see it
	s.put(t, site+"salt/returners/saltern.py", "__version__ = '0.4'\n")
	s.wantUsed(t, "0.4")
	s.put(t, site+"saltext_saltern-0.5.dist-info/entry_points.txt", "[salt.loader]\nsaltext.saltern = saltext.saltern\n")
	s.wantUsed(t, "0.5")
	s.put(t, "more/saltern.py", "__version__ = '0.3'\n")
	s.wantUsed(t, "0.3")
	s.put(t, "returners/saltern.py", "__version__ = '0.2'\n")
	s.wantUsed(t, "0.2")
	s.put(t, "var/cache/salt/master/extmods/returners/other.py", "__version__ = '0.1'\n__virtualname__ = 'saltern'\n")
	s.wantUsed(t, "0.2") // Salt asks the file that is named saltern first
	s.put(t, "var/cache/salt/master/extmods/returners/saltern.py", "__version__ = '0.0'\n")
	s.wantUsed(t, "0.0")
	s.put(t, "more/saltern/__init__.py", "__version__ = '0.00'\n")
	r := s.wantUsed(t, "0.00") // a package goes before all files
	if len(r.Returners) != 8 {
		t.Errorf("%d copies of 8: %+v", len(r.Returners), r.Returners)
	}
	r.want(t, "returner", "ok", "Salt 3008.4", "version 0.00")
}

func (s *setup) wantUsed(t *testing.T, version string) report {
	t.Helper()
	r := s.examine(t)
	var used []string
	for _, c := range r.Returners {
		if c.Used {
			used = append(used, c.Version)
		}
	}
	if got := strings.Join(used, ","); got != version {
		t.Errorf("in use is %q, want %q: %+v", got, version, r.Returners)
	}
	return r
}
