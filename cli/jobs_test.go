package cli_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"saltern/cli"
	"saltern/testbed/rpcclient"
)

// withJobs is a daemon with three jobs, of which one failed and one runs.
func withJobs(t *testing.T) *running {
	r := serve(t)
	r.publish(t, "20261130100000000001", "test.ping", "*", "root", nil, "alpha", "beta")
	r.giveBack(t, "20261130100000000001", "alpha", "test.ping", 0, true)
	r.giveBack(t, "20261130100000000001", "beta", "test.ping", 0, true)
	r.publish(t, "20261130110000000002", "cmd.run", "web*", "ana", []any{"exit 3"}, "web1")
	r.giveBack(t, "20261130110000000002", "web1", "cmd.run", 3, "no\x1b[2Jsuch \u202ething\nat all")
	r.publish(t, "20261130120000000003", "state.apply", "*", "root", []any{"base"}, "alpha", "beta")
	r.giveBack(t, "20261130120000000003", "alpha", "state.apply", 2, map[string]any{
		"pkg_|-vim_|-vim_|-installed": map[string]any{"__run_num__": 0, "__id__": "vim", "result": true,
			"changes": map[string]any{"vim": "9"}, "comment": "installed"},
		"file_|-motd_|-/etc/motd_|-managed": map[string]any{"__run_num__": 1, "__id__": "motd", "result": false,
			"changes": map[string]any{}, "comment": "no source\nmore"},
	})
	return r
}

func TestJobsListShowsATable(t *testing.T) {
	r := withJobs(t)
	got := saltern(t, "jobs", "list", "--http", r.http).wantCode(t, cli.ExitOK)
	golden(t, "jobs_list.txt", got.stdout)
}

func TestJobsListFilters(t *testing.T) {
	r := withJobs(t)
	for _, c := range []struct {
		flags string
		want  string // functions, newest first
	}{
		{"", "state.apply cmd.run test.ping"},
		{"--fun test.*", "test.ping"},
		{"--tgt web?", "cmd.run"},
		{"--user ana", "cmd.run"},
		{"--minion beta", "state.apply test.ping"},
		{"--master m1 --limit 2", "state.apply cmd.run"},
		{"--master other", ""},
		{"--state failed", "state.apply cmd.run"},
		{"--state complete", "test.ping"},
		{"--from 2026-11-30T10:30:00Z --to 2026-11-30T11:30:00Z", "cmd.run"},
		{"--from 2026-11-30 --to 2026-12-01 --all", "state.apply cmd.run test.ping"},
		{"--to 300d", ""},
	} {
		t.Run(c.flags, func(t *testing.T) {
			args := append([]string{"jobs", "list", "--json", "--http", r.http}, strings.Fields(c.flags)...)
			if strings.Contains(c.flags, "web?") {
				args[len(args)-1] = "web?"
			}
			var got struct {
				Jobs []struct{ Fun string }
				More bool
			}
			saltern(t, args...).wantCode(t, cli.ExitOK).json(t, &got)
			var funs []string
			for _, j := range got.Jobs {
				funs = append(funs, j.Fun)
			}
			if s := strings.Join(funs, " "); s != c.want {
				t.Errorf("got %q, want %q", s, c.want)
			}
			if want := strings.Contains(c.flags, "--limit 2"); got.More != want {
				t.Errorf("more is %v, want %v", got.More, want)
			}
		})
	}
}

// The daemon gives at most 1000 jobs at a time, and a page may be empty and still have a next.
func TestJobsListGoesThroughPages(t *testing.T) {
	const jobs = 1100
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		limit, _ := strconv.Atoi(r.FormValue("limit"))
		if limit < 1 || limit > 1000 {
			t.Errorf("the daemon is asked for %d jobs", limit)
		}
		first, _ := strconv.Atoi(r.FormValue("cursor"))
		last := min(first+limit, jobs)
		if r.FormValue("cursor") == "" {
			last = first // nothing found yet
		}
		rows := []string{}
		for i := first; i < last; i++ {
			rows = append(rows, fmt.Sprintf(`{"jid":"%d"}`, i))
		}
		next := "null"
		if last < jobs {
			next = fmt.Sprintf(`"%d"`, last)
		}
		fmt.Fprintf(w, `{"jobs":[%s],"next":%s}`, strings.Join(rows, ","), next)
	}))
	defer server.Close()
	for flags, want := range map[string]int{"--all": jobs, "--limit=1050": 1050, "--limit=7": 7, "": 100, "--limit=5000": jobs} {
		args := append([]string{"jobs", "list", "--json", "--http", server.URL}, strings.Fields(flags)...)
		var got struct {
			Jobs []struct{ JID string }
			More bool
		}
		saltern(t, args...).wantCode(t, cli.ExitOK).json(t, &got)
		if len(got.Jobs) != want || got.Jobs[want-1].JID != strconv.Itoa(want-1) || got.More != (want < jobs) {
			t.Errorf("%q gave %d jobs (more: %v), want %d", flags, len(got.Jobs), got.More, want)
		}
	}
}

func TestJobsShow(t *testing.T) {
	r := withJobs(t)
	for file, jid := range map[string]string{
		"jobs_show_text.txt":   "20261130110000000002",
		"jobs_show_states.txt": "20261130120000000003",
	} {
		got := saltern(t, "jobs", "show", jid, "--http", r.http).wantCode(t, cli.ExitOK)
		golden(t, file, got.stdout)
	}
}

func TestJobsShowKeepsNumbersExactInJSON(t *testing.T) {
	r := serve(t)
	const jid, big = "20261130100000000001", uint64(18446744073709551615)
	r.publish(t, jid, "x.y", "*", "root", nil, "alpha")
	r.giveBack(t, jid, "alpha", "x.y", 0, map[string]any{"n": big, "f": 1.0})
	var got struct {
		JID     string
		Load    struct{ Fun string }
		Returns []struct {
			Minion string
			Return map[string]json.Number
		}
	}
	saltern(t, "jobs", "show", "--json", "--http", r.http, jid).wantCode(t, cli.ExitOK).json(t, &got)
	if len(got.Returns) != 1 || got.Returns[0].Return["n"] != "18446744073709551615" || got.Returns[0].Return["f"] != "1.0" {
		t.Errorf("got %+v", got)
	}
}

// The daemon gives returns in pages of some megabytes.
func TestJobsShowReadsAllPagesOfReturns(t *testing.T) {
	pages := map[string]string{
		"/v1/jobs/a%2Fb":                   `{"jid":"a/b","returns":[{"minion":"m1"}],"next":"m1"}`,
		"/v1/jobs/a%2Fb/returns?after=m1":  `{"jid":"a/b","returns":[{"minion":"m2"},{"minion":"m 3"}],"next":"m 3"}`,
		"/v1/jobs/a%2Fb/returns?after=m+3": `{"jid":"a/b","returns":[],"next":null}`,
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		page, there := pages[r.RequestURI]
		if !there {
			t.Errorf("the daemon is asked for %s", r.RequestURI)
		}
		_, _ = io.WriteString(w, page)
	}))
	defer server.Close()
	var got struct{ Returns []struct{ Minion string } }
	saltern(t, "jobs", "show", "--json", "--http", server.URL, "a/b").wantCode(t, cli.ExitOK).json(t, &got)
	if len(got.Returns) != 3 || got.Returns[2].Minion != "m 3" {
		t.Errorf("got %+v", got)
	}
}

func TestUnknownJob(t *testing.T) {
	r := serve(t)
	for _, jid := range []string{"20261130100000000009", "a/b?c", "../v1/events"} {
		got := saltern(t, "jobs", "show", jid, "--http", r.http).wantCode(t, cli.ExitNotFound)
		wantContains(t, got.stderr, "knows no job "+jid)
	}
}

func TestUnreachable(t *testing.T) {
	for _, args := range [][]string{{"jobs", "list"}, {"jobs", "show", "1"}, {"events"}} {
		got := saltern(t, append(args, "--http", "127.0.0.1:1")...).wantCode(t, cli.ExitUnreachable)
		wantContains(t, got.stderr, "http://127.0.0.1:1", "saltern serve", "SALTERN_HTTP")
		if strings.Count(got.stderr, "\n") != 1 {
			t.Errorf("more than one line: %q", got.stderr)
		}
	}
}

func TestTheEnvironmentNamesTheAddress(t *testing.T) {
	r := withJobs(t)
	t.Setenv("SALTERN_HTTP", "http://"+r.http+"/")
	wantContains(t, saltern(t, "jobs", "list").wantCode(t, cli.ExitOK).stdout, "state.apply")
}

func TestUsageErrors(t *testing.T) {
	for _, line := range []string{
		"", "nonsense", "jobs", "jobs nonsense", "jobs list x", "jobs show", "jobs show 1 2",
		"jobs list --state odd", "jobs list --limit 0", "jobs list --limit x", "jobs list --from yesterday",
		"jobs list --from 1h --to 2h", "jobs list --from -3d", "jobs list --http nowhere", "jobs list --http ftp://x:1",
		"events x", "events --limit -1", "version x", "doctor x", "demo x", "demo", "demo --salt /nonexistent",
	} {
		got := saltern(t, strings.Fields(line)...).wantCode(t, cli.ExitUsage)
		if got.stderr == "" {
			t.Errorf("%q: no reason is given", line)
		}
	}
}

func TestEvents(t *testing.T) {
	r := serve(t)
	id := func(seconds int64) []byte {
		micros := uint64(1796040000+seconds) * 1_000_000
		b := make([]byte, 16)
		for i := range 8 {
			b[i] = byte(micros >> (56 - 8*i))
		}
		return b
	}
	r.call(t, "save_events", "m1", []any{
		[]any{id(0), "salt/job/1/new", rpcclient.Packed(map[string]any{"minions": []any{"alpha"}}), false},
		[]any{id(60), "salt/job/1/ret/al\x1b[31mpha", rpcclient.Packed(map[string]any{"return": strings.Repeat("long ", 50)}), false},
		[]any{id(120), "salt/auth", rpcclient.Packed(map[string]any{"result": true}), false},
	})
	got := saltern(t, "events", "--http", r.http).wantCode(t, cli.ExitOK)
	golden(t, "events.txt", got.stdout)
	var some struct {
		Events []struct{ Tag string }
		More   bool
	}
	saltern(t, "events", "--json", "--tag", "salt/job/*", "--limit", "1", "--http", r.http).
		wantCode(t, cli.ExitOK).json(t, &some)
	if len(some.Events) != 1 || some.Events[0].Tag != "salt/job/1/ret/al\x1b[31mpha" || !some.More {
		t.Errorf("got %+v", some)
	}
}

func TestVersion(t *testing.T) {
	var got struct {
		Version, Go, Platform string
		Protocol              int
	}
	saltern(t, "version", "--json").wantCode(t, cli.ExitOK).json(t, &got)
	if got.Version == "" || !strings.HasPrefix(got.Go, "go1") || got.Protocol != 1 {
		t.Errorf("got %+v", got)
	}
	wantContains(t, saltern(t, "--version").wantCode(t, cli.ExitOK).stdout, "saltern "+got.Version)
}

func TestHelpOfEachCommand(t *testing.T) {
	for _, line := range []string{"help", "-h", "jobs -h", "jobs list -h", "jobs show -h", "events -h", "doctor -h", "version -h", "demo -h", "serve -h"} {
		got := saltern(t, strings.Fields(line)...).wantCode(t, cli.ExitOK)
		if got.stdout+got.stderr == "" {
			t.Errorf("%q says nothing", line)
		}
	}
}

// golden compares text with a file of testdata; with SALTERN_GOLDEN=write it writes the file.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if os.Getenv("SALTERN_GOLDEN") == "write" {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("not as %s (SALTERN_GOLDEN=write writes it):\n%s", file, got)
	}
}
