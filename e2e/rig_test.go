package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"saltern/testbed"
)

// rig is the daemon with two masters of one version of Salt. Its tests run one after the other.
type rig struct {
	version string
	env     string
	bed     *testbed.Bed
	daemon  *testbed.Daemon
	ours    *side // jobs in Saltern
	stock   *side // jobs in local_cache
}

// sides are both masters.
func (r *rig) sides() []*side { return []*side{r.ours, r.stock} }

// compare fails for every answer noted on our side, since the last call, that is not what the stock side noted.
func (r *rig) compare(t *testing.T) {
	t.Helper()
	for _, what := range slices.Sorted(maps.Keys(r.ours.answers)) {
		stock, ok := r.stock.answers[what]
		if !ok {
			t.Errorf("%s was not asked of the stock side", what)
			continue
		}
		same(t, what, r.ours.answers[what], stock)
	}
	r.ours.answers = map[string]any{}
}

var minions = []string{"alpha", "beta"}

// salternBinary is built once for all tests.
var salternBinary = sync.OnceValues(func() (string, error) {
	return testbed.BuildSaltern(context.Background(), binaryDir)
})

// binaryDir is where it is built, if at all.
var binaryDir string

func TestMain(m *testing.M) {
	var err error
	if binaryDir, err = os.MkdirTemp("", "st-bin-"); err != nil {
		panic(err)
	}
	code := m.Run()
	if err := os.RemoveAll(binaryDir); err != nil {
		panic(err)
	}
	os.Exit(code)
}

// newRig starts everything of one version; what fails skips nothing and fails the test.
func newRig(t *testing.T, version string) *rig {
	t.Helper()
	ctx := t.Context()
	program, err := salternBinary()
	if err != nil {
		t.Fatal(err)
	}
	env, err := testbed.PythonEnv(ctx, "salt-"+version)
	if err != nil {
		t.Fatal(err)
	}
	bed, err := testbed.New("e2e")
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{version: version, env: env, bed: bed}
	t.Cleanup(func() {
		if t.Failed() {
			r.logs(t)
		}
		if err := bed.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(bed.Dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s was left behind", bed.Dir)
		}
	})
	if r.daemon, err = testbed.NewDaemon(bed, testbed.DaemonOptions{Binary: program}); err != nil {
		t.Fatal(err)
	}
	if err := bed.Start(ctx, r.daemon); err != nil {
		t.Fatal(err)
	}
	config := map[string]any{"master_job_cache": "saltern", "event_return": []string{"saltern"}}
	if strings.HasPrefix(version, "3006") {
		// One version collects its events, the other hands each over by itself, which is the default (S06).
		config["event_return_queue"] = 10
	}
	r.ours = r.newSide(t, "ours", config)
	r.stock = r.newSide(t, "stock", nil)
	each(t, r.sides(), func(s *side) error { return bed.Start(ctx, s.Salt) })
	return r
}

// newSide writes the configuration of a master whose minions know Saltern too.
func (r *rig) newSide(t *testing.T, name string, master map[string]any) *side {
	t.Helper()
	saltern := func() map[string]any {
		return map[string]any{
			"returner_dirs": []string{testbed.ReturnerDir()},
			"saltern": map[string]any{
				"address":   r.daemon.Address(),
				"spool_dir": r.spool(name),
			},
		}
	}
	config, minion := saltern(), saltern()
	config["worker_threads"] = 5
	config["job_cache_store_endtime"] = true
	config["keep_jobs_seconds"] = 7200
	for key, value := range master {
		config[key] = value
	}
	modules, err := filepath.Abs(filepath.Join("testdata", "modules"))
	if err != nil {
		t.Fatal(err)
	}
	minion["module_dirs"] = []string{modules}
	salt, err := testbed.NewSalt(r.bed, testbed.SaltOptions{
		Name: name, Env: r.env, Minions: minions, Master: config, Minion: minion,
		States: map[string]string{
			"thirty.sls":  thirtyStates(),
			"failing.sls": "broken:\n  test.fail_without_changes:\n    - name: it's 'broken'\n",
			"orch.sls":    orchestration,
		},
		Pillar: map[string]string{"top.sls": "base:\n  '*':\n    - common\n", "common.sls": "colour: blue\n"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return &side{name: name, Salt: salt, jids: map[string]string{}, answers: map[string]any{}}
}

// spool is the folder in which a side spools.
func (r *rig) spool(side string) string { return filepath.Join(r.bed.Dir, "spool", side) }

func thirtyStates() string {
	var b strings.Builder
	for i := range 30 {
		fmt.Fprintf(&b, "step %d:\n  test.configurable_test_state:\n    - name: /etc/app/it's_%d.conf\n    - changes: %t\n    - result: true\n    - comment: done\n", i, i, i%3 == 0)
	}
	return b.String()
}

const orchestration = `
first:
  salt.function:
    - name: test.echo
    - tgt: beta
    - arg:
      - from the orchestration
second:
  salt.state:
    - tgt: alpha
    - sls: thirty
    - require:
      - salt: first
`

// logs shows the end of the daemon's log and what the logs of Salt warn of, for a test that failed.
func (r *rig) logs(t *testing.T) {
	t.Logf("%s\n%s", r.daemon.Log(), testbed.Tail(r.daemon.Log(), 100))
	for _, log := range []string{r.ours.MasterLog(), r.ours.MinionLog("alpha"), r.ours.MinionLog("beta"), r.stock.MasterLog()} {
		t.Logf("%s\n%s", log, problems(testbed.Tail(log, 3000)))
	}
}

// problem begins a record of a log that says something; the others are what Salt 3008 warns of in a healthy run.
var problem, noise = regexp.MustCompile(`\[(WARNING|ERROR|CRITICAL)`), regexp.MustCompile(`unclosed |Task was destroyed|asyncio`)

// problems are the records of a Salt log from WARNING on, with the lines that follow them.
func problems(text string) string {
	var kept []string
	keep := false
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "20") {
			keep = problem.MatchString(line) && !noise.MatchString(line)
		}
		if keep {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "")
}

// each does the same on several sides at once.
func each(t *testing.T, sides []*side, do func(*side) error) {
	t.Helper()
	errs := make([]error, len(sides))
	var wait sync.WaitGroup
	for i, s := range sides {
		wait.Go(func() {
			if err := do(s); err != nil {
				errs[i] = fmt.Errorf("%s: %w", s.name, err)
			}
		})
	}
	wait.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// view gives the JSON of the daemon's HTTP side.
func (r *rig) view(ctx context.Context, path string, query url.Values) (map[string]any, int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.daemon.HTTP+path+"?"+query.Encode(), nil)
	if err != nil {
		return nil, 0, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, 0, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, 0, err
	}
	var decoded map[string]any
	if err := json.Unmarshal(text, &decoded); err != nil {
		return nil, answer.StatusCode, fmt.Errorf("GET %s: %s: %w: %.500s", path, answer.Status, err, text)
	}
	return decoded, answer.StatusCode, nil
}

// poll asks until it gives nil, or gives its last error after a minute.
func poll(ask func() error) error {
	deadline := time.Now().Add(time.Minute)
	for {
		err := ask()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// eventually is poll in a test.
func eventually(t *testing.T, ask func() error) {
	t.Helper()
	if err := poll(ask); err != nil {
		t.Fatal(err)
	}
}
