package server

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"saltern/job"
	"saltern/proxy"
	"saltern/tiers/embedded"
	"saltern/tiers/memory"
)

// openReal opens a proxy over the cache and the store in a folder. The caller closes it.
func openReal(t *testing.T, dir string) *proxy.Proxy {
	t.Helper()
	store, err := embedded.Open(embedded.Options{Dir: dir, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	cache, err := memory.New(memory.Options{MaxBytes: 8 << 20})
	if err != nil {
		t.Fatal(err)
	}
	return proxy.Open(proxy.Options{Cache: cache, Store: store, Clock: job.NewClock(1, time.Now), Logger: quiet()})
}

// realSite puts both servers over a proxy.
func realSite(t *testing.T, p *proxy.Proxy) (*caller, *site) {
	t.Helper()
	web := httptest.NewServer(NewHTTP(HTTPOptions{Jobs: p, Version: "1.2.3", Logger: quiet()}))
	t.Cleanup(web.Close)
	return newHub(t, p, Limits{}).dial(), &site{t: t, url: web.URL}
}

// Every method over real tiers, and once more after a restart: what was answered is there.
func TestRPCOverRealTiers(t *testing.T) {
	dir := t.TempDir()
	p := openReal(t, dir)
	c, _ := realSite(t, p)
	jid := prepared(t, c)
	now := time.Now()
	load := packedMap([2]any{"jid", jid}, [2]any{"fun", "test.ping"})
	c.want(`true`, "ping")
	c.want(`true`, "save_load", loadHeader(jid), load, []any{"b", "a"})
	c.want(`true`, "save_minions", jid, []any{"c"}, "syndic", nil)
	c.want(`"stored"`, "save_return", saveReturn(jid, "a", pairs{{1, []byte{0x82}}})...)
	c.want(`"repeat"`, "save_return", saveReturn(jid, "a", pairs{{1, []byte{0x82}}})...)
	c.want(`"differs"`, "save_return", saveReturn(jid, "a", false)...)
	c.want(`true`, "update_endtime", jid, "2026, Dec 01", nil)
	c.want(`true`, "save_events", "m1", []any{[]any{eventID(now), "salt/x", load, false}, []any{eventID(now), "salt/x", load, false}})
	c.want(`true`, "save_reg", "m1", []byte{1, 2})
	c.want(`true`, "clean_old_jobs")
	unmarked := c.call("prep_jid", true, nil)
	var nocache string
	if err := json.Unmarshal([]byte(viewOf(unmarked.result)), &nocache); err != nil {
		t.Fatal(err)
	}
	c.want(`"dropped"`, "save_return", saveReturn(nocache, "a", true)...)

	check := func(c *caller, s *site) {
		t.Helper()
		c.want(`{"jid":"`+jid+`","fun":"test.ping","Minions":["a","b","c"]}`, "get_load", jid)
		c.want(`null`, "get_load", "20261201129999999999")
		c.want(`[{"a":{"id":"a","_stamp":"s","return":{"$map":[[1,{"$base64":"gg=="}]]}}},null]`, "get_jid", jid, "")
		c.want(`[{},null]`, "get_jid", "20261201129999999999", "")
		c.want(`{"a":"test.ping"}`, "get_fun", "test.ping")
		c.want(`{}`, "get_fun", "state.apply")
		c.want(`["a"]`, "get_minions")
		c.want(`"2026, Dec 01"`, "get_endtime", jid)
		c.want(`[["`+jid+`"],null,0]`, "list_jobs", pairs{{"fun", "test.*"}})
		c.want(`[["`+jid+`"],null,0]`, "list_jobs", pairs{{"fun", "test.*"}, {"limit", -5}})
		c.want(`[[["`+jid+`",{"jid":"`+jid+`","fun":"test.ping"},["a","b","c"],"2026, Dec 01"]],null,0]`,
			"list_jobs", pairs{{"loads", true}, {"minion", "c"}})
		c.want(`{"$base64":"AQI="}`, "load_reg", "m1")
		c.want(`null`, "load_reg", "m2")
		checkPages(t, s, jid)
	}
	c2, s := realSite(t, p)
	check(c2, s)
	_ = c2.c.Close()
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	p = openReal(t, dir)
	defer func() { _ = p.Close() }()
	check(realSite(t, p))
}

// prepared is a jid of the server's own.
func prepared(t *testing.T, c *caller) string {
	t.Helper()
	var jid string
	if err := json.Unmarshal([]byte(viewOf(c.call("prep_jid", false, nil).result)), &jid); err != nil {
		t.Fatal(err)
	}
	return jid
}

// eventID is an id as the returner makes it.
func eventID(t time.Time) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, uint64(t.UnixMicro())), 1)
}

// checkPages asks for the same by HTTP.
func checkPages(t *testing.T, s *site, jid string) {
	t.Helper()
	list := s.get(200, "/v1/jobs?fun=test.*")["jobs"].([]any)
	if len(list) != 1 {
		t.Fatalf("/v1/jobs has %d jobs; want 1", len(list))
	}
	for what, row := range map[string]any{"the list": list[0], "the job": s.get(200, "/v1/jobs/"+jid)} {
		row := row.(map[string]any)
		if row["jid"] != jid || row["state"] != "running" || row["expected"] != json.Number("3") ||
			row["returned"] != json.Number("1") || row["missing"] != json.Number("2") {
			t.Errorf("%s has %v", what, row)
		}
	}
	for query, want := range map[string]int{
		"tgt=*": 1, "user=root": 1, "user=bob": 0, "minion=c": 1, "minion=x": 0, "state=failed": 0, "master=m1": 1,
		"from=2100-01-01T00:00:00Z": 0, "fun=test.ping&to=4e9": 1,
	} {
		if n := len(s.get(200, "/v1/jobs?fun=test.*&"+strings.TrimPrefix(query, "fun=test.ping&"))["jobs"].([]any)); n != want {
			t.Errorf("/v1/jobs?%s has %d jobs; want %d", query, n, want)
		}
	}
	s.get(404, "/v1/jobs/20261201129999999999")
	s.get(404, "/v1/jobs/20261201129999999999/returns")
	s.get(400, "/v1/jobs?cursor=forged")
	for query, want := range map[string]int{"tag=salt/*": 1, "tag=salt/y": 0, "master=m2": 0, "order=oldest&from=0": 1} {
		if n := len(s.get(200, "/v1/events?"+query)["events"].([]any)); n != want {
			t.Errorf("/v1/events?%s has %d events; want %d: what was sent twice is one", query, n, want)
		}
	}
	if rows := s.get(200, "/v1/minions")["minions"].([]any); len(rows) != 1 || rows[0].(map[string]any)["fun"] != "test.ping" {
		t.Errorf("/v1/minions has %v", rows)
	}
}

// Jids and minion ids are strings that anybody may choose: they are stored, listed and found.
func TestOddIDsOverRealTiers(t *testing.T) {
	p := openReal(t, t.TempDir())
	defer func() { _ = p.Close() }()
	c, s := realSite(t, p)
	ids := []string{"a/b", "..", ".", "a:b", "日本", "a\x00b", "\x00", "\xff\xff", "?#%&", " ", "caf\xe9", "caf\xed\xb3\xa9", "~x", "*", "[a]"}
	for _, id := range ids {
		c.want(`true`, "save_load", loadHeader(id), packedMap([2]any{"k", id}), []any{id})
		c.want(`"stored"`, "save_return", saveReturn(id, id, id)...)
		c.want(viewOf(pack(pairs{{"k", id}, {"Minions", []any{id}}})), "get_load", id)
		c.want(viewOf(pack([]any{pairs{{id, pairs{{"id", id}, {"_stamp", "s"}, {"return", id}}}}, nil})), "get_jid", id, "")
		got := s.get(200, "/v1/jobs/"+percent(id))
		if n := len(got["returns"].([]any)); n != 1 {
			t.Errorf("job %q: %d returns by HTTP", id, n)
		}
		if n := len(s.get(200, "/v1/jobs?minion="+percent(id))["jobs"].([]any)); n != 1 {
			t.Errorf("minion %q: %d jobs by HTTP; want 1", id, n)
		}
	}
	seen, next := 0, ""
	for pages := 0; pages <= len(ids); pages++ {
		page := s.get(200, "/v1/minions?limit=4"+next)
		seen += len(page["minions"].([]any))
		after, more := page["next"].(string)
		if !more {
			break
		}
		next = "&after=" + url.QueryEscape(after)
	}
	if seen != len(ids) {
		t.Errorf("%d minions on all pages; want %d", seen, len(ids))
	}
}

// A job larger than a page comes in several, by RPC and by HTTP, each return once.
func TestPagesOverRealTiers(t *testing.T) {
	p := openReal(t, t.TempDir())
	defer func() { _ = p.Close() }()
	c, s := realSite(t, p)
	jid := prepared(t, c)
	const minions, size = 40, 100 << 10
	for i := range minions {
		c.want(`"stored"`, "save_return", saveReturn(jid, fmt.Sprintf("m%02d", i), strings.Repeat("x", size))...)
	}
	seen, pages, after := 0, 0, ""
	for ; pages <= minions; pages++ {
		n, next := readPage(t, c.call("get_jid", jid, after).result)
		seen += n
		if n*size > 2*pageBytes {
			t.Errorf("a page of %d returns of 100 KiB", n)
		}
		if after = next; next == "" {
			break
		}
	}
	if seen != minions || pages < 2 {
		t.Errorf("get_jid gave %d returns on %d pages; want %d on several", seen, pages+1, minions)
	}
	seen, path := 0, "/v1/jobs/"+jid
	for next := ""; ; {
		page := s.get(200, path+next)
		seen += len(page["returns"].([]any))
		after, more := page["next"].(string)
		if !more {
			break
		}
		next = "/returns?after=" + after
	}
	if seen != minions {
		t.Errorf("HTTP gave %d returns; want %d", seen, minions)
	}
}

// readPage reads the number of returns in an answer of get_jid, and its next.
func readPage(t *testing.T, result []byte) (n int, next string) {
	t.Helper()
	var page []any
	if err := json.Unmarshal([]byte(viewOf(result)), &page); err != nil || len(page) != 2 {
		t.Fatalf("an answer of get_jid is no pair: %v", err)
	}
	next, _ = page[1].(string)
	return len(page[0].(map[string]any)), next
}
