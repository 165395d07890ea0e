package cli

import (
	"encoding/json"
	"strings"
	"testing"
)

var demoMinions = []string{"alpha", "beta", "gamma"}

// The demo's exit code is worth something only if wrong answers are seen: each case spoils right ones
// in one way.
func TestDemoSeesWrongAnswers(t *testing.T) {
	const jid = "20261201120000000001"
	row := `{"jid":"J","fun":"cmd.run","target":"*","user":"USER","state":"failed","expected":3,"returned":3,"failed":3}`
	ret := `{"minion":"MINION","retcode":3,"success":false,"failed":true,"return":"it fails"}`
	shown := `{"jid":"J","load":{"fun":"cmd.run","target":"*","target_type":"glob","user":"USER","master":"m1",
		"data":{"arg":["echo it fails; exit 3"]}},"minions":["alpha","beta","gamma"],"returns":[` + perMinion(ret, ",") + `]}`
	listed := `{"J":{"Function":"cmd.run","Arguments":["echo it fails; exit 3"],"Target":"*","Target-type":"glob",
		"User":"USER","StartTime":"2026, Dec 01 12:00:00.000001"}}`
	lookedUp := `{` + perMinion(`"MINION":"it fails"`, ",") + `}`
	saved := `{` + perMinion(`"MINION":{"jid":"J","id":"MINION","fun":"cmd.run","fun_args":["echo it fails; exit 3"],
		"retcode":3,"success":false,"return":"it fails","_stamp":"2026-12-01T12:00:00"}`, ",") + `}`

	faults := func(old, spoilt string) []string {
		t.Helper()
		spoil := func(document string, into any) {
			document = strings.NewReplacer("USER", demoUser(), `"J"`, `"`+jid+`"`).Replace(strings.Replace(document, old, spoilt, 1))
			if err := json.Unmarshal([]byte(document), into); err != nil {
				t.Fatalf("%v in %s", err, document)
			}
		}
		job := demoJobs("m1", demoMinions)[2]
		job.jid = jid
		c, cl := &demoCheck{jobs: []*demoJob{job}}, &client{}
		var document, lookup map[string]json.RawMessage
		var list map[string]listedJob
		var returns map[string]savedReturn
		var rows []json.RawMessage
		spoil("["+row+"]", &rows)
		spoil(shown, &document)
		spoil(listed, &list)
		spoil(lookedUp, &lookup)
		spoil(saved, &returns)
		c.list(cl, rows)
		c.job(cl, job, document)
		c.listJobs(list)
		c.lookup(job, lookup)
		c.getJID(job, returns)
		return c.faults
	}
	if got := faults("", ""); got != nil {
		t.Fatalf("faults of right answers: %q", got)
	}
	for old, spoilt := range map[string]string{
		`"J"`:                      `"20261201120000000009"`,
		`"fun":"cmd.run"`:          `"fun":"cmd.retcode"`,
		`"Function":"cmd.run"`:     `"Function":""`,
		`"target":"*"`:             `"target":"alpha"`,
		`"Target":"*"`:             `"Target":["alpha"]`,
		`"target_type":"glob"`:     `"target_type":"list"`,
		`"Target-type":"glob"`:     `"Target-type":"list"`,
		`"user":"USER"`:            `"user":"somebody"`,
		`"master":"m1"`:            `"master":"m2"`,
		`"User":"USER"`:            `"User":"somebody"`,
		`"state":"failed"`:         `"state":"complete"`,
		`"expected":3`:             `"expected":4`,
		`"returned":3`:             `"returned":2`,
		`"failed":3`:               `"failed":0`,
		`"failed":true`:            `"failed":false`,
		`"retcode":3`:              `"retcode":0`,
		`"success":false`:          `"success":true`,
		`"return":"it fails"`:      `"return":null`,
		`"beta":"it fails"`:        `"delta":"it fails"`,
		`"minion":"beta"`:          `"minion":"delta"`,
		`"arg":["echo`:             `"arg":["Echo`,
		`"Arguments":["echo`:       `"Arguments":["Echo`,
		`"fun_args":["echo`:        `"fun_args":["Echo`,
		`"_stamp":"2026`:           `"stamp":"2026`,
		`"StartTime"`:              `"EndTime"`,
		`"id":"gamma"`:             `"id":"beta"`,
		`["alpha","beta","gamma"]`: `["alpha","beta"]`,
	} {
		if faults(old, spoilt) == nil {
			t.Errorf("%s instead of %s is not seen", spoilt, old)
		}
	}
}

// perMinion repeats a text for each minion.
func perMinion(text, separator string) string {
	var out []string
	for _, m := range demoMinions {
		out = append(out, strings.ReplaceAll(text, "MINION", m))
	}
	return strings.Join(out, separator)
}

func TestDemoSeesMissingEvents(t *testing.T) {
	job := &demoJob{jid: "1", minions: demoMinions}
	rows := []json.RawMessage{json.RawMessage(`{"tag":"salt/job/1/new"}`), json.RawMessage(`{"tag":"salt/job/1/publish"}`)}
	if got := missingEvents(&client{}, job, rows); got != "salt/job/1/ret/alpha" {
		t.Errorf("missing is %q", got)
	}
	for _, m := range demoMinions {
		rows = append(rows, json.RawMessage(`{"tag":"salt/job/1/ret/`+m+`"}`))
	}
	if got := missingEvents(&client{}, job, rows); got != "" {
		t.Errorf("missing is %q", got)
	}
}

func TestDemoStatesAreRight(t *testing.T) {
	right := demoJobs("m1", demoMinions)[1].right
	var states []string
	for i := range demoStateCount {
		states = append(states, `"test_|-`+strings.Repeat("x", i+1)+`_|-n_|-nop":{"result":true,"changes":{}}`)
	}
	all := `{` + strings.Join(states, ",") + `}`
	for raw, want := range map[string]bool{
		all:                                       true,
		strings.Replace(all, "true", "false", 1):  false,
		strings.Replace(all, "true", "null", 1):   false,
		`{` + strings.Join(states[1:], ",") + `}`: false,
		`["Rendering SLS failed"]`:                false,
		``:                                        false,
	} {
		if got := right(json.RawMessage(raw)); got != want {
			t.Errorf("right is %v, want %v, of %.100s", got, want, raw)
		}
	}
}
