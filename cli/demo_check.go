package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strings"
)

// demoCheck holds the answers of the demo against what was run.
type demoCheck struct {
	jobs   []*demoJob
	faults []string
}

func (c *demoCheck) faultf(format string, args ...any) {
	c.faults = append(c.faults, harmless(fmt.Sprintf(format, args...)))
}

// expect notes a fault where got is not want.
func expect[T comparable](c *demoCheck, where string, got, want T) {
	if got != want {
		c.faultf("%s: %v instead of %v", where, got, want)
	}
}

// demoUser is the user that Salt records for a job of ours.
func demoUser() string {
	me, err := user.Current()
	if err != nil {
		return ""
	}
	if by := os.Getenv("SUDO_USER"); me.Username == "root" && by != "" {
		return "sudo_" + by
	}
	return me.Username
}

// list looks at the rows of /v1/jobs.
func (c *demoCheck) list(cl *client, rows []json.RawMessage) {
	byJID := map[string]jobRow{}
	for _, raw := range rows {
		var row jobRow
		if err := cl.decode(raw, &row); err != nil {
			c.faultf("jobs list: %v", err)
			return
		}
		byJID[string(row.JID)] = row
	}
	for _, j := range c.jobs {
		row, found := byJID[j.jid]
		if !found {
			c.faultf("jobs list: %s %s is not there", j.fun, j.jid)
			continue
		}
		where := "jobs list: " + j.fun + ": "
		state, failed := "complete", 0
		if j.failed {
			state, failed = "failed", len(j.minions)
		}
		expect(c, where+"function", string(row.Fun), j.fun)
		expect(c, where+"target", string(row.Target), "*")
		expect(c, where+"user", string(row.User), demoUser())
		expect(c, where+"state", row.State, state)
		expect(c, where+"minions", row.Expected, len(j.minions))
		expect(c, where+"returns", row.Returned, len(j.minions))
		expect(c, where+"failed returns", row.Failed, failed)
	}
}

// job looks at one job with its returns.
func (c *demoCheck) job(cl *client, j *demoJob, document map[string]json.RawMessage) {
	where := "jobs show: " + j.fun + ": "
	raw, err := json.Marshal(document)
	var got shownJob
	if err == nil {
		err = cl.decode(raw, &got)
	}
	if err != nil {
		c.faultf("%s%v", where, err)
		return
	}
	if got.Load == nil {
		c.faultf("%sthere is no load", where)
		return
	}
	expect(c, where+"function", string(got.Load.Fun), j.fun)
	expect(c, where+"target", string(got.Load.Target), "*")
	expect(c, where+"kind of target", string(got.Load.TargetType), "glob")
	expect(c, where+"user", string(got.Load.User), demoUser())
	expect(c, where+"master", string(got.Load.Master), j.master)
	expect(c, where+"arguments", arguments(got.Load.Data), argumentsAsJSON(j.args))
	expect(c, where+"minions", joined(got.Minions), strings.Join(j.minions, " "))
	var returned []text
	for _, r := range got.Returns {
		returned = append(returned, r.Minion)
		code := "none"
		if r.RetCode != nil {
			code = r.RetCode.String()
		}
		expect(c, where+string(r.Minion)+": return code", code, fmt.Sprint(j.retcode))
		expect(c, where+string(r.Minion)+": failed", r.Failed, j.failed)
		if !j.right(r.Return) {
			c.faultf("%s%s returned %s", where, r.Minion, shorten(string(r.Return), 200))
		}
	}
	expect(c, where+"returns", joined(returned), strings.Join(j.minions, " "))
}

func argumentsAsJSON(args []string) string {
	if len(args) == 0 {
		return ""
	}
	b, _ := json.Marshal(args) // strings can be marshalled
	return string(b)
}

func joined(ids []text) string {
	words := make([]string, len(ids))
	for i, id := range ids {
		words[i] = string(id)
	}
	slices.Sort(words)
	return strings.Join(words, " ")
}

// missingEvents gives a tag that should be among the events of a job, empty when all are: that of
// its publish, and of a return of each minion.
func missingEvents(cl *client, j *demoJob, rows []json.RawMessage) string {
	want := []string{"salt/job/" + j.jid + "/new"}
	for _, m := range j.minions {
		want = append(want, "salt/job/"+j.jid+"/ret/"+m)
	}
	for _, raw := range rows {
		var e eventRow
		if cl.decode(raw, &e) == nil {
			want = slices.DeleteFunc(want, func(tag string) bool { return tag == string(e.Tag) })
		}
	}
	if len(want) > 0 {
		return want[0]
	}
	return ""
}

// listedJob is a job as salt-run jobs.list_jobs gives it.
type listedJob struct {
	Function   string
	Target     any
	TargetType string `json:"Target-type"`
	User       string
	Arguments  []any
	StartTime  string
}

func (c *demoCheck) listJobs(answer map[string]listedJob) {
	for _, j := range c.jobs {
		where := "jobs.list_jobs: " + j.fun + ": "
		got, found := answer[j.jid]
		if !found {
			c.faultf("%snot there", where)
			continue
		}
		expect(c, where+"Function", got.Function, j.fun)
		expect(c, where+"Target", fmt.Sprint(got.Target), "*")
		expect(c, where+"Target-type", got.TargetType, "glob")
		expect(c, where+"User", got.User, demoUser())
		expect(c, where+"Arguments", fmt.Sprint(got.Arguments...), strings.Join(j.args, " "))
		if got.StartTime == "" {
			c.faultf("%sno StartTime", where)
		}
	}
}

// lookup looks at the answer of jobs.lookup_jid: minion to result.
func (c *demoCheck) lookup(j *demoJob, answer map[string]json.RawMessage) {
	expect(c, "jobs.lookup_jid: minions", len(answer), len(j.minions))
	for _, m := range j.minions {
		if !j.right(answer[m]) {
			c.faultf("jobs.lookup_jid: %s returned %s", m, shorten(string(answer[m]), 200))
		}
	}
}

// savedReturn is a return as ret.get_jid gives it.
type savedReturn struct {
	JID     string
	ID      string
	Fun     string
	FunArgs []any `json:"fun_args"`
	Return  json.RawMessage
	RetCode *int64
	Success *bool
	Stamp   string `json:"_stamp"`
}

func (c *demoCheck) getJID(j *demoJob, answer map[string]savedReturn) {
	expect(c, "ret.get_jid: minions", len(answer), len(j.minions))
	for _, m := range j.minions {
		where := "ret.get_jid: " + m + ": "
		got, found := answer[m]
		if !found || got.RetCode == nil || got.Success == nil {
			c.faultf("%sno return, or one without retcode or success", where)
			continue
		}
		expect(c, where+"jid", got.JID, j.jid)
		expect(c, where+"id", got.ID, m)
		expect(c, where+"fun", got.Fun, j.fun)
		expect(c, where+"fun_args", fmt.Sprint(got.FunArgs...), strings.Join(j.args, " "))
		expect(c, where+"retcode", *got.RetCode, j.retcode)
		expect(c, where+"success", *got.Success, !j.failed)
		if got.Stamp == "" {
			c.faultf("%sno _stamp", where)
		}
		if !j.right(got.Return) {
			c.faultf("%sreturn is %s", where, shorten(string(got.Return), 200))
		}
	}
}
