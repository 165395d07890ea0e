package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"saltern/testbed"
)

// Salt's own tests of the jobs runner, as they are in its source distribution, with Saltern as the master's job cache.
// All of them have to pass; with the name local_cache and a returner that stores each save_load, three fail.
func TestSaltsOwnJobs3008(t *testing.T) {
	saltsOwn(t, "3008.4", "tests/pytests/integration/runners/test_jobs.py")
}
func TestSaltsOwnJobs3006(t *testing.T) {
	saltsOwn(t, "3006.29", "tests/pytests/integration/runners/test_jobs.py")
}

// verdict is pytest's last line.
var verdict = regexp.MustCompile(`(?m)^=* ?(\d+) passed( in|, \d+ warnings? in) `)

func saltsOwn(t *testing.T, version, tests string) {
	if testing.Short() {
		t.Skip("runs a real master for a minute")
	}
	t.Parallel()
	ctx := t.Context()
	program, err := salternBinary()
	if err != nil {
		t.Fatal(err)
	}
	env, err := testbed.PythonEnv(ctx, "salt-"+version)
	if err != nil {
		t.Fatal(err)
	}
	source, err := testbed.SaltSource(ctx, version)
	if err != nil {
		t.Fatal(err)
	}
	bed, err := testbed.New("own")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := bed.Close(); err != nil {
			t.Error(err)
		}
	}()
	daemon, err := testbed.NewDaemon(bed, testbed.DaemonOptions{Binary: program})
	if err != nil {
		t.Fatal(err)
	}
	if err := bed.Start(ctx, daemon); err != nil {
		t.Fatal(err)
	}
	master, err := json.Marshal(map[string]any{
		"master_job_cache": "saltern",
		"returner_dirs":    []string{testbed.ReturnerDir()},
		"saltern":          map[string]any{"address": daemon.Address(), "spool_dir": filepath.Join(bed.Dir, "spool")},
	})
	if err != nil {
		t.Fatal(err)
	}
	// Salt's suite keeps its scripts in the folder for temporary files: one of its own, or one version would run the
	// code of another.
	temporary := filepath.Join(bed.Dir, "t")
	if err := os.Mkdir(temporary, 0o755); err != nil {
		t.Fatal(err)
	}
	plugin, err := filepath.Abs(filepath.Join("testdata", "saltsuite"))
	if err != nil {
		t.Fatal(err)
	}
	out, err := testbed.RunCommand(ctx, "/usr/bin/env", "-C", source,
		"TMPDIR="+temporary, "SALTERN_MASTER="+string(master), "PYTHONPATH="+plugin,
		filepath.Join(env, "bin", "python"), "-m", "pytest", "-p", "saltern_masters", "-p", "no:cacheprovider",
		"-c", os.DevNull, "--rootdir=.", "--run-slow", "-q", "-rfEs", tests)
	if err != nil {
		t.Fatal(err)
	}
	passed := verdict.FindStringSubmatch(out.Stdout)
	want := countTests(t, filepath.Join(source, tests))
	if out.Code != 0 || passed == nil || passed[1] != strconv.Itoa(want) {
		t.Errorf("Salt's own tests: code %d, want all of %d to pass:\n%s\n%s\n%s", out.Code, want, out.Stdout, out.Stderr,
			testbed.Tail(daemon.Log(), 50))
		return
	}
	t.Logf("%s of %s: %d of %d passed in %v", tests, version, want, want, out.Took)
}

// countTests counts the test functions of a Python file.
func countTests(t *testing.T, path string) int {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count("\n"+string(text), "\ndef test_")
}
