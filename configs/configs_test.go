package configs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"saltern/configs"
)

func read(t *testing.T, name string) []byte {
	t.Helper()
	b, err := fs.ReadFile(configs.Files, name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestAllOptionsIsTheDefault(t *testing.T) {
	got, err := configs.Parse(read(t, "all-options.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	want := configs.Default()
	got.Listen = slices.Clip(append([]string(nil), got.Listen...)) // an empty list is no list
	if !reflect.DeepEqual(got, want) {
		t.Errorf("all-options.yaml gives %+v; want the defaults %+v", got, want)
	}
}

// keysOf gives the dotted keys of a YAML mapping, sections left out, with their nodes.
func keysOf(n *yaml.Node, section string) map[string]*yaml.Node {
	all := make(map[string]*yaml.Node)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		path := strings.TrimPrefix(section+"."+key.Value, ".")
		if value.Tag == "!!null" {
			path += " without a value"
		}
		if value.Kind != yaml.MappingNode {
			all[path] = key
			continue
		}
		for k, v := range keysOf(value, path) {
			all[k] = v
		}
	}
	return all
}

func TestAllOptionsHasEveryKey(t *testing.T) {
	var doc yaml.Node
	if err := yaml.Unmarshal(read(t, "all-options.yaml"), &doc); err != nil {
		t.Fatal(err)
	}
	inFile := keysOf(doc.Content[0], "")
	for _, key := range configs.Keys() {
		n, there := inFile[key]
		if !there {
			t.Errorf("all-options.yaml does not have the key %s: describe it there", key)
			continue
		}
		// socket-group shares the comment of the key above it.
		if n.HeadComment == "" && key != "socket-group" {
			t.Errorf("all-options.yaml does not say what %s is", key)
		}
		delete(inFile, key)
	}
	for key := range inFile {
		t.Errorf("all-options.yaml has %s, which is no key", key)
	}
}

func TestEveryFileIsUsable(t *testing.T) {
	if _, err := configs.Parse(read(t, "minimal.yaml")); err != nil {
		t.Errorf("minimal.yaml: %v", err)
	}
	var master map[string]any
	if err := yaml.Unmarshal(read(t, "salt/master.conf"), &master); err != nil {
		t.Fatalf("salt/master.conf: %v", err)
	}
	if master["master_job_cache"] != "saltern" {
		t.Errorf("salt/master.conf: master_job_cache is %v; want saltern", master["master_job_cache"])
	}
	if !strings.Contains(string(read(t, "salt/master.conf")), "# ext_job_cache: saltern") {
		t.Error("salt/master.conf does not show ext_job_cache")
	}
	unit := string(read(t, "systemd/saltern.service"))
	for _, line := range []string{"StateDirectory=saltern", "RuntimeDirectory=saltern", "Type=exec", "ExecStart=/usr/bin/saltern serve"} {
		if !strings.Contains(unit, "\n"+line+"\n") {
			t.Errorf("systemd/saltern.service has no line %s", line)
		}
	}
}

func TestParseReadsOverTheDefaults(t *testing.T) {
	c, err := configs.Parse([]byte(`
data-dir: /srv/saltern
listen: [unix:/run/s.sock, "tcp:127.0.0.1:4530"]
socket-mode: 0600
http: off
limits: {max-payload: 8MiB, idle-timeout: 1m30s}
retention:
  default-keep: 7d12h
log:
memory: {window-share: 0.5}
`))
	if err != nil {
		t.Fatal(err)
	}
	want := configs.Default()
	want.DataDir, want.Listen = "/srv/saltern", []string{"unix:/run/s.sock", "tcp:127.0.0.1:4530"}
	want.SocketMode, want.HTTP = 0o600, "off"
	want.Limits.MaxPayload, want.Limits.IdleTimeout = 8*configs.MiB, configs.Duration(90*time.Second)
	want.Retention.DefaultKeep = configs.Duration(180 * time.Hour)
	want.Memory.WindowShare = 0.5
	if !reflect.DeepEqual(c, want) {
		t.Errorf("Parse gave %+v; want %+v", c, want)
	}
	if c.HTTPEnabled() || !configs.Default().HTTPEnabled() {
		t.Error("http: off does not turn HTTP off, or the default does")
	}
}

func TestParseOfNothing(t *testing.T) {
	for _, text := range []string{"", "# only a comment\n", "---\n", "listen: unix:/run/one.sock\n"} {
		if _, err := configs.Parse([]byte(text)); err != nil {
			t.Errorf("Parse(%q): %v", text, err)
		}
	}
}

func TestLoadReportsAllFaultsAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "saltern.yaml")
	text := `limits:
  max_payload: 1MiB
  max-conections: 4
  max-in-flight: many
  idle-timeout: 30
max-depth: 5
memory:
  max-bytes: 64MB
  window-share: 2
http: 0.0.0.0:4531
listen: [tcp:10.0.0.1:4530, unix:saltern.sock, http:x]
log: {level: loud}
log: {level: info}
zzz: 1
read: 5
namespace: {a: b}
read2: {soft-timeout: 1m}
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := configs.Load(path)
	if err == nil {
		t.Fatal("Load took a file full of faults")
	}
	want := []string{
		":2: limits.max_payload: unknown key; did you mean limits.max-payload?",
		":3: limits.max-conections: unknown key; did you mean limits.max-connections?",
		`:4: limits.max-in-flight: "many" is no whole number`,
		`:5: limits.idle-timeout: "30" is no duration: a number and a unit (ms, s, m, h, d) are needed, as in 10s, 1h30m or 7d`,
		":6: max-depth: unknown key; did you mean limits.max-depth?",
		`:8: memory.max-bytes: "64MB" is no size: a whole number and a unit (B, KiB, MiB, GiB, TiB) are needed, as in 64MiB`,
		":9: memory.window-share: 2 is not between 0.05 and 0.95",
		`:10: http: "0.0.0.0:4531" can be reached from other machines, and there is no authentication yet: use 127.0.0.1, [::1] or localhost`,
		`:11: listen[0]: "10.0.0.1:4530" can be reached from other machines, and there is no authentication yet: use 127.0.0.1, [::1] or localhost`,
		`:11: listen[1]: "unix:saltern.sock": the path of the socket has to be absolute`,
		`:11: listen[2]: "http:x": unix:PATH or tcp:HOST:PORT is needed`,
		`:12: log.level: "loud" is not one of debug, info, warn, error`,
		":13: log: the key is there twice",
		":14: zzz: unknown key",
		":15: read: keys with values are needed",
		":16: namespace: a single value is needed",
		":17: read2: unknown key; did you mean read?",
	}
	got := strings.Split(err.Error(), "\n")
	for i := range want {
		want[i] = path + want[i]
	}
	for _, line := range want {
		if !slices.Contains(got, line) {
			t.Errorf("no line %q", line)
		}
	}
	for _, line := range got {
		if !slices.Contains(want, line) {
			t.Errorf("line not expected: %q", line)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"a: [":                         "no YAML",
		"- a\n":                        "keys with values are needed",
		"http: off\n---\nhttp: off\n":  "second YAML document",
		"read: {soft-timeout: 20s}":    "read.soft-timeout: 20s is more than 10s",
		"write: {timeout: 0}":          "write.timeout: it has to be more than 0",
		"retention: {default-keep: 0}": "retention.default-keep: 0 is less than 1m",
		"socket-mode: 0999":            `"0999" is no mode`,
		"socket-mode: 0060":            "does not let the owner connect",
		"http: 127.0.0.1":              "HOST:PORT is needed",
		"http: 127.0.0.1:99999":        "the port is not one of",
		"http: 0.0.0.0:0":              "can be reached from other machines",
		"http: example.com:4531":       "can be reached from other machines",
		"data-dir: var/lib":            "not absolute",
		"namespace: ''":                "a name is needed",
		`master: "a\nb"`:               "control characters",
		"listen: [unix:/a, unix:/a]":   "is there twice",
		"listen: [unix:/" + strings.Repeat("x", 200) + "]": "may have 107 bytes",
		"limits: {max-payload: 3GiB}":                      "3GiB is not between 1KiB and 2GiB",
		"limits: {max-depth: 1000000}":                     "more than 100000",
		"limits: {max-connections: 0}":                     "0 is less than 1",
		"memory: {window-share: nan}":                      "not between",
		"memory: {negative-ttl: 2m}":                       "2m is more than 1m",
	} {
		_, err := configs.Parse([]byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Parse(%q): %v; want an error with %q", text, err, want)
		}
	}
}

func TestLoadNamesAMissingFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none.yaml")
	if _, err := configs.Load(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("Load of a missing file: %v; want its path", err)
	}
}

func TestResolve(t *testing.T) {
	for name, tt := range map[string]struct {
		env           map[string]string
		root          bool
		dataDir, sock string
	}{
		"systemd": {map[string]string{"STATE_DIRECTORY": "/var/lib/saltern:/x", "RUNTIME_DIRECTORY": "/run/saltern", "HOME": "/h"}, false, "/var/lib/saltern", "/run/saltern"},
		"root":    {map[string]string{"XDG_RUNTIME_DIR": "/run/user/0", "HOME": "/root"}, true, "/var/lib/saltern", "/run/saltern"},
		"user":    {map[string]string{"XDG_RUNTIME_DIR": "/run/user/7", "XDG_STATE_HOME": "/h/state", "HOME": "/h"}, false, "/h/state/saltern", "/run/user/7"},
		"bare":    {map[string]string{"HOME": "/h"}, false, "/h/.local/state/saltern", "/h/.local/state/saltern"},
		// The XDG specification says to ignore paths that are not absolute.
		"relative": {map[string]string{"XDG_RUNTIME_DIR": "r", "XDG_STATE_HOME": "s", "HOME": "/h"}, false, "/h/.local/state/saltern", "/h/.local/state/saltern"},
	} {
		c := configs.Default()
		c.Resolve(configs.Env{Getenv: func(k string) string { return tt.env[k] }, Root: tt.root})
		if c.DataDir != tt.dataDir || !slices.Equal(c.Listen, []string{"unix:" + tt.sock + "/saltern.sock"}) {
			t.Errorf("%s: data-dir %s, listen %s; want %s, %s/saltern.sock", name, c.DataDir, c.Listen, tt.dataDir, tt.sock)
		}
		if err := c.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	c := configs.Default()
	c.DataDir, c.Listen = "/d", []string{"unix:/l"}
	c.Resolve(configs.ProcessEnv())
	if c.DataDir != "/d" || c.Listen[0] != "unix:/l" {
		t.Errorf("Resolve changed what was set: %s %s", c.DataDir, c.Listen)
	}
}
