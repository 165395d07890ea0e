package cli_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"saltern/cli"
	"saltern/job"
	"saltern/testbed/rpcclient"
)

// folder is a local_cache of our own making; those that Salt made are imported in e2e/moving.
func folder(t *testing.T, jid string, files map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	add(t, dir, jid, files)
	return dir
}

func add(t *testing.T, dir, jid string, files map[string][]byte) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(dir, "jobs", "aa", jid, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func jobFiles(jid, arg string) map[string][]byte {
	return map[string][]byte{
		"jid": []byte(jid),
		".load.p": rpcclient.Packed(map[string]any{
			"jid": jid, "fun": "test.arg", "arg": []any{arg}, "tgt": "*", "user": "root", "key": "the master's own",
			"kwargs": map[string]any{"token": "s3cret", "show_jid": false},
		}),
		".minions.p":     rpcclient.Packed([]any{"alpha", "beta"}),
		"alpha/return.p": rpcclient.Packed(map[string]any{"return": "imported", "retcode": 0, "success": true}),
		"beta/return.p":  rpcclient.Packed(map[string]any{"return": "imported", "retcode": 1, "success": true}),
	}
}

func (r *running) importFolder(t *testing.T, code int, dir string, more ...string) (figures map[string]float64, o outcome) {
	t.Helper()
	args := append([]string{"import", "local_cache", dir, "--address", "unix:" + r.socket, "--json", "--keep", "30d"}, more...)
	o = saltern(t, args...).wantCode(t, code)
	var all map[string]any
	o.json(t, &all)
	figures = map[string]float64{}
	for name, value := range all {
		if n, ok := value.(json.Number); ok {
			figures[name], _ = n.Float64()
		}
	}
	return figures, o
}

// What Salt gave to Saltern itself stays, whichever came first; what is missing comes from the other store. The master's
// key and a token do not come with it.
func TestImportBesideAWorkingMaster(t *testing.T) {
	r := serve(t)
	jid := string(job.NewJID(time.Now().Add(-time.Hour)))
	r.publish(t, jid, "test.arg", "web*", "alice", []any{"of Salt"}, "alpha", "gamma")
	r.giveBack(t, jid, "alpha", "test.arg", 0, "of Salt")
	figures, _ := r.importFolder(t, cli.ExitOK, folder(t, jid, jobFiles(jid, "imported")))
	if figures["stored"] != 2 || figures["there"] != 2 { // minions and beta; load and alpha
		t.Errorf("figures %v", figures)
	}
	load, err := r.rpc.Call(t.Context(), "get_load", jid)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"arg": []any{"of Salt"}, "Minions": []any{"alpha", "beta", "gamma"}}
	for key, value := range want {
		if got := load.(map[string]any)[key]; !reflect.DeepEqual(got, value) {
			t.Errorf("%s is %v, want %v", key, got, value)
		}
	}
	shown := r.exported(t)
	wantContains(t, shown, `"of Salt"`, `"imported"`)

	// The other way round: the job comes from the folder, and then from Salt.
	later := string(job.NewJID(time.Now().Add(-2 * time.Hour)))
	r.importFolder(t, cli.ExitOK, folder(t, later, jobFiles(later, "imported")))
	if shown := r.exported(t); strings.Contains(shown, "s3cret") || strings.Contains(shown, "the master's own") {
		t.Error("a secret of a load is stored")
	}
	r.publish(t, later, "test.arg", "web*", "alice", []any{"of Salt"}, "alpha")
	load, err = r.rpc.Call(t.Context(), "get_load", later)
	if err != nil || !reflect.DeepEqual(load.(map[string]any)["arg"], []any{"of Salt"}) {
		t.Errorf("get_load gives %v, %v", load, err)
	}
}

// Lists show an imported job as it was: at its time, and not as running because its facts just came.
func TestImportedJobIsOfItsTime(t *testing.T) {
	r := serve(t)
	jid := string(job.NewJID(time.Now().Add(-48 * time.Hour)))
	files := jobFiles(jid, "x")
	delete(files, "beta/return.p")
	dir := folder(t, jid, files)
	ago := time.Now().Add(-48 * time.Hour)
	if err := os.Chtimes(filepath.Join(dir, "jobs", "aa", jid, "alpha", "return.p"), ago, ago); err != nil {
		t.Fatal(err)
	}
	r.importFolder(t, cli.ExitOK, dir)
	for state, want := range map[string]int{"incomplete": 1, "running": 0} {
		var list struct{ Jobs []struct{ JID string } }
		saltern(t, "jobs", "list", "--http", r.http, "--state", state, "--json").wantCode(t, cli.ExitOK).json(t, &list)
		if len(list.Jobs) != want {
			t.Errorf("%d jobs are %s, want %d", len(list.Jobs), state, want)
		}
	}
}

// What cannot be read is named, the rest is taken, and the exit code tells.
func TestImportReportsWhatCannotBeRead(t *testing.T) {
	r := serve(t)
	jid := string(job.NewJID(time.Now()))
	files := jobFiles(jid, "x")
	files["alpha/return.p"] = files["alpha/return.p"][:7] // cut off
	files["latin/return.p"] = rpcclient.Packed(map[string]any{"return": "\xe4"})
	files["old/return.p"] = rpcclient.Packed("a bare result, as older Salts wrote it")
	dir := folder(t, jid, files)
	old := string(job.NewJID(time.Now().Add(-31 * 24 * time.Hour)))
	add(t, dir, old, jobFiles(old, "x"))
	figures, o := r.importFolder(t, cli.ExitFailed, dir)
	if figures["unreadable"] != 2 || figures["returns"] != 2 || figures["expired"] != 1 || figures["jobs"] != 1 {
		t.Errorf("figures %v", figures)
	}
	wantContains(t, o.stderr, filepath.Join(jid, "alpha"), filepath.Join(jid, "latin"), "no UTF-8")
	wantContains(t, r.exported(t), "a bare result, as older Salts wrote it")
}

// An import that was broken off goes on where it was, and one that was not begins anew.
func TestImportGoesOn(t *testing.T) {
	r := serve(t)
	dir := t.TempDir()
	var jids []string
	for i := range 3 {
		jids = append(jids, string(job.NewJID(time.Now().Add(-time.Duration(3-i)*time.Minute))))
		add(t, dir, jids[i], jobFiles(jids[i], "x"))
	}
	state := filepath.Join(t.TempDir(), "state")
	content, err := json.Marshal(map[string]string{"source": "local_cache " + dir, "cursor": "aa/" + jids[1]})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(state, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if figures, _ := r.importFolder(t, cli.ExitOK, dir, "--state", state); figures["jobs"] != 1 {
		t.Errorf("figures %v, want the last job alone", figures)
	}
	if _, err := os.Stat(state); !os.IsNotExist(err) {
		t.Errorf("the state is still there: %v", err)
	}
	if figures, _ := r.importFolder(t, cli.ExitOK, dir, "--state", state); figures["jobs"] != 3 || figures["there"] != 4 {
		t.Errorf("figures %v, want all three jobs", figures)
	}
	o := saltern(t, "import", "local_cache", dir, "--address", "unix:/nowhere/s.sock", "--keep", "0").wantCode(t, cli.ExitUnreachable)
	wantContains(t, o.stderr, "/nowhere/s.sock")
}
