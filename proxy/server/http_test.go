package server

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"saltern/job"
	"saltern/tiers"
)

// site is an HTTP server over a shelf.
type site struct {
	t     *testing.T
	shelf *shelf
	url   string
	ready error
}

func newSite(t *testing.T, change ...func(*HTTPOptions)) *site {
	t.Helper()
	s := &site{t: t, shelf: newShelf()}
	o := HTTPOptions{Jobs: s.shelf, Version: "1.2.3", Logger: quiet(), Ready: func() error { return s.ready }}
	for _, c := range change {
		c(&o)
	}
	server := httptest.NewServer(NewHTTP(o))
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

// do sends a request and gives the answer with its body.
func (s *site) do(method, path string, change ...func(*http.Request)) (*http.Response, string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, c := range change {
		c(r)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return answer, string(body)
}

// get gives the body of an answer that has to have a status.
func (s *site) get(status int, path string) map[string]any {
	s.t.Helper()
	answer, body := s.do("GET", path)
	if answer.StatusCode != status {
		s.t.Fatalf("GET %s: %s %s; want %d", path, answer.Status, body, status)
	}
	if got := answer.Header.Get("Content-Type"); got != "application/json" {
		s.t.Errorf("GET %s: content type %q", path, got)
	}
	var out map[string]any
	d := json.NewDecoder(strings.NewReader(body))
	d.UseNumber()
	if err := d.Decode(&out); err != nil {
		s.t.Fatalf("GET %s: %v in %s", path, err, body)
	}
	return out
}

// errorOf gives name and message of an error.
func errorOf(body map[string]any) (name, message string) {
	e, _ := body["error"].(map[string]any)
	name, _ = e["name"].(string)
	message, _ = e["message"].(string)
	return name, message
}

const (
	jidA = job.JID("20261201120000000001")
	jidB = job.JID("20261201120000000002")
)

func publish(jid job.JID, minions ...job.Minion) []job.Fact {
	return []job.Fact{
		job.Load{
			JID: jid, Rank: job.RankPublish, Version: 1, Fun: "test.ping", Target: "*", TargetType: "glob", User: "root",
			Master: "m1", Keep: 3600, Payload: pack(pairs{{"jid", string(jid)}, {"fun", "test.ping"}}),
		},
		job.Minions{JID: jid, IDs: minions},
	}
}

func returned(jid job.JID, id job.Minion, value any) job.Return {
	code, ok := int64(0), true
	return job.Return{
		JID: jid, Minion: id, Version: 1, Fun: "test.ping", Keep: job.KeepUnset, RetCode: &code, Success: &ok,
		Ret: pack(value), Rest: pack(pairs{{"id", string(id)}}), Times: pack(pairs{{"_stamp", "2026"}}),
	}
}

func TestHTTPHealth(t *testing.T) {
	s := newSite(t)
	if got := s.get(200, "/healthz"); got["status"] != "ok" || got["version"] != "1.2.3" {
		t.Errorf("/healthz = %v", got)
	}
	if got := s.get(200, "/readyz"); got["status"] != "ready" {
		t.Errorf("/readyz = %v", got)
	}
	s.ready = errors.New("the store is being opened")
	answer, body := s.do("GET", "/readyz")
	if answer.StatusCode != 503 || answer.Header.Get("Retry-After") == "" || !strings.Contains(body, "the store is being opened") {
		t.Errorf("/readyz when not ready: %s, Retry-After %q, %s", answer.Status, answer.Header.Get("Retry-After"), body)
	}
	if got := s.get(200, "/healthz"); got["status"] != "ok" {
		t.Errorf("/healthz when not ready = %v", got)
	}
}

// A page of the internet that has its name point to 127.0.0.1 must not read jobs.
func TestHTTPAnswersNoForeignHost(t *testing.T) {
	s := newSite(t)
	for host, want := range map[string]int{
		"localhost": 200, "localhost:4531": 200, "LOCALHOST.": 200, "127.0.0.1": 200, "127.8.8.8:1": 200, "[::1]": 200, "[::1]:4531": 200,
		"evil.example": 403, "evil.example:4531": 403, "localhost.evil.example": 403, "10.0.0.1": 403, "0.0.0.0:4531": 403, "[::]": 403,
	} {
		for _, path := range []string{"/healthz", "/v1/jobs", "/none"} {
			answer, body := s.do("GET", path, func(r *http.Request) { r.Host = host })
			if refused := answer.StatusCode == 403; refused != (want == 403) {
				t.Errorf("GET %s of host %s: %s %s", path, host, answer.Status, body)
			}
		}
	}
}

func TestHTTPMethods(t *testing.T) {
	s := newSite(t)
	save(t, s.shelf, publish(jidA, "a")...)
	for _, path := range []string{"/healthz", "/readyz", "/v1/jobs", "/v1/jobs/" + string(jidA), "/v1/jobs/" + string(jidA) + "/returns", "/v1/minions", "/v1/events"} {
		for _, method := range []string{"POST", "PUT", "DELETE", "PATCH", "OPTIONS", "NONSENSE"} {
			answer, body := s.do(method, path)
			if answer.StatusCode != 405 || answer.Header.Get("Allow") != "GET, HEAD" || !strings.Contains(body, `"unsupported"`) {
				t.Errorf("%s %s: %s, Allow %q, %s", method, path, answer.Status, answer.Header.Get("Allow"), body)
			}
		}
		if answer, body := s.do("HEAD", path); answer.StatusCode != 200 || body != "" {
			t.Errorf("HEAD %s: %s with %d bytes", path, answer.Status, len(body))
		}
	}
	for _, path := range []string{"/", "/v1", "/v1/jobs/", "/v1/jobs/x/y", "/v2/jobs"} {
		if name, message := errorOf(s.get(404, path)); name != "not-found" || !strings.Contains(message, "/v1/jobs") {
			t.Errorf("GET %s: %s: %s; want the addresses that there are", path, name, message)
		}
	}
}

func TestHTTPJobs(t *testing.T) {
	s := newSite(t)
	save(t, s.shelf, publish(jidA, "a", "b")...)
	save(t, s.shelf, publish(jidB, "a")...)
	save(t, s.shelf, returned(jidB, "a", true))

	jobs := s.get(200, "/v1/jobs")["jobs"].([]any)
	if len(jobs) != 2 {
		t.Fatalf("%d jobs; want 2", len(jobs))
	}
	got := jobs[0].(map[string]any)
	for key, want := range map[string]any{
		"jid": string(jidB), "state": "complete", "fun": "test.ping", "target": "*", "target_type": "glob", "user": "root",
		"expected": json.Number("1"), "returned": json.Number("1"), "missing": json.Number("0"), "failed": json.Number("0"),
		"time": "2026-12-01T12:00:00.000002Z", "keep": nil,
	} {
		if got[key] != want {
			t.Errorf("the newest job has %s = %v; want %v", key, got[key], want)
		}
	}
}

func TestHTTPJobsArePaged(t *testing.T) {
	s := newSite(t)
	for i := range 5 {
		save(t, s.shelf, publish(job.NewJID(time.Date(2026, 12, 1, 0, 0, i, 0, time.UTC)), "a")...)
	}
	var got []string
	path := "/v1/jobs?limit=2&fun=test.*"
	for path != "" {
		answer, body := s.do("GET", path)
		var page struct {
			Jobs []struct{ JID string }
			Next *string
		}
		if err := json.Unmarshal([]byte(body), &page); err != nil || answer.StatusCode != 200 {
			t.Fatalf("GET %s: %s %s", path, answer.Status, body)
		}
		for _, j := range page.Jobs {
			got = append(got, j.JID[13:14])
		}
		link := answer.Header.Get("Link")
		if (link != "") != (page.Next != nil) {
			t.Fatalf("Link %q with next %v", link, page.Next)
		}
		path = strings.TrimSuffix(strings.TrimPrefix(link, "<"), `>; rel="next"`)
	}
	if strings.Join(got, "") != "43210" {
		t.Errorf("jobs of all pages: %s; want 43210, newest first", got)
	}
}

func TestHTTPJobsTakesFilters(t *testing.T) {
	s := newSite(t)
	s.get(200, "/v1/jobs?fun=state.*&tgt=web*&user=root&minion=a%2Fb&state=failed&master=m1&limit=7&cursor=3"+
		"&from=2026-12-01T01:02:03.5%2B01:00&to=1796083200.25")
	want := tiers.Filter{
		Fun: "state.*", Target: "web*", User: "root", Minion: "a/b", State: job.Failed, Master: "m1", Limit: 7, Cursor: "3",
		From: time.Date(2026, 12, 1, 0, 2, 3, 5e8, time.UTC), To: time.Date(2026, 12, 1, 0, 0, 0, 25e7, time.UTC),
	}
	if fmt.Sprint(s.shelf.filter) != fmt.Sprint(want) {
		t.Errorf("the store was asked for %+v; want %+v", s.shelf.filter, want)
	}
	s.get(200, "/v1/events?tag=salt/*&master=m1&from=0&to=10&order=oldest&limit=3")
	wantEvents := tiers.EventQuery{Tag: "salt/*", Master: "m1", From: time.Unix(0, 0).UTC(), To: time.Unix(10, 0).UTC(), Oldest: true, Limit: 3}
	if fmt.Sprint(s.shelf.query) != fmt.Sprint(wantEvents) {
		t.Errorf("the store was asked for %+v; want %+v", s.shelf.query, wantEvents)
	}
}

func TestHTTPRefusesWrongParameters(t *testing.T) {
	s := newSite(t)
	save(t, s.shelf, publish(jidA, "a")...)
	for path, want := range map[string]string{
		"/v1/jobs?function=x":                     `unknown parameter "function"; known are fun, tgt, user, minion, state, master, from, to, limit, cursor`,
		"/v1/events?fun=x":                        `unknown parameter "fun"; known are tag, master, from, to, order, limit, cursor`,
		"/v1/minions?tgt=x":                       `unknown parameter "tgt"; known are fun, after, limit`,
		"/v1/jobs/" + string(jidA) + "?limit=1":   `unknown parameter "limit"; known are after`,
		"/v1/jobs/x/returns?cursor=1":             `unknown parameter "cursor"; known are after`,
		"/v1/jobs?fun=a&fun=b":                    "parameter fun is there 2 times",
		"/v1/jobs?limit=0":                        `limit is "0", not a number from 1 to 1000`,
		"/v1/jobs?limit=1001":                     `limit is "1001"`,
		"/v1/jobs?limit=ten":                      `limit is "ten"`,
		"/v1/jobs?state=done":                     `state is "done", not one of running, complete, failed, incomplete`,
		"/v1/jobs?from=yesterday":                 `from is "yesterday", neither RFC 3339`,
		"/v1/jobs?to=nan":                         `to is "nan", neither RFC 3339`,
		"/v1/jobs?from=1e300":                     `from is "1e300", neither RFC 3339`,
		"/v1/jobs?from=2026-12-01T00:00:00+01:00": "a + is written %2B",
		"/v1/events?order=random":                 `order is "random", not one of newest, oldest`,
		"/v1/jobs?a=%zz":                          "query: ",
		"/v1/minions?after=~!":                    "which no answer had as its next",
		"/v1/jobs/" + strings.Repeat("x", 1025):   "a jid has 1 to 1024 bytes",
	} {
		if name, message := errorOf(s.get(400, path)); name != "invalid" || !strings.Contains(message, want) {
			t.Errorf("GET %s: %s: %s; want %q in it", path, name, message, want)
		}
	}
}

func TestHTTPShowsAJob(t *testing.T) {
	s := newSite(t)
	save(t, s.shelf, publish(jidA, "a", "b")...)
	r := returned(jidA, "a", pairs{{"k", []byte{0x82}}, {"n", 1.0}})
	r.Failed = true
	save(t, s.shelf, r, job.EndTime{JID: jidA, Text: "2026, Dec 01"})
	_, body := s.do("GET", "/v1/jobs/"+string(jidA))
	want := `{"jid":"20261201120000000001","time":"2026-12-01T12:00:00.000001Z","state":"failed",` +
		`"expected":2,"returned":1,"missing":1,"failed":1,"last":"2026-12-01T12:00:00.000001Z",` +
		`"load":{"fun":"test.ping","target":"*","target_type":"glob","user":"root","master":"m1","keep":3600,` +
		`"stored":"2020-01-01T00:00:00.000000Z","data":{"jid":"20261201120000000001","fun":"test.ping"}},` +
		`"minions":["a","b"],"end_time":"2026, Dec 01",` +
		`"returns":[{"minion":"a","fun":"test.ping","master":"","retcode":0,"success":true,"failed":true,` +
		`"stored":"2020-01-01T00:00:00.000000Z","return":{"k":{"$base64":"gg=="},"n":1.0},` +
		`"data":{"id":"a","_stamp":"2026"}}],"next":null}` + "\n"
	if body != want {
		t.Errorf("the job is shown as %s\nwant %s", body, want)
	}
}

// A job that is known by a return alone has no load, and one with a jid of somebody's own no time.
func TestHTTPShowsAPartOfAJob(t *testing.T) {
	s := newSite(t)
	r := returned("my-job", "a", nil)
	r.RetCode, r.Success = nil, nil
	save(t, s.shelf, r, job.NoCache{JID: "marked"})
	got := s.get(200, "/v1/jobs/my-job")
	ret := got["returns"].([]any)[0].(map[string]any)
	if got["load"] != nil || got["time"] != nil || ret["retcode"] != nil || ret["success"] != nil || ret["return"] != nil {
		t.Errorf("the job is shown as %v", got)
	}
	if got := s.get(200, "/v1/jobs/marked"); got["nocache"] != true {
		t.Errorf("the job marked nocache is shown as %v", got)
	}
}

func TestHTTPTellsUnknownFromUnavailable(t *testing.T) {
	s := newSite(t)
	for _, path := range []string{"/v1/jobs/20260101000000000000", "/v1/jobs/20260101000000000000/returns"} {
		answer, body := s.do("GET", path)
		if answer.StatusCode != 404 || answer.Header.Get("Retry-After") != "" || !strings.Contains(body, `"not-found"`) {
			t.Errorf("GET %s: %s %s", path, answer.Status, body)
		}
		for fault, status := range map[error]int{
			tiers.ErrUnavailable: 503, tiers.ErrTimeout: 503, context.DeadlineExceeded: 503, errors.New("odd"): 503, tiers.ErrInvalid: 400,
		} {
			s.shelf.fail(fmt.Errorf("store: %w", fault))
			answer, body := s.do("GET", path)
			if answer.StatusCode != status || (answer.Header.Get("Retry-After") != "") != (status == 503) {
				t.Errorf("GET %s with %v: %s, Retry-After %q, %s", path, fault, answer.Status, answer.Header.Get("Retry-After"), body)
			}
		}
		s.shelf.fail(nil)
	}
	s.shelf.fail(tiers.ErrUnavailable)
	for _, path := range []string{"/v1/jobs", "/v1/minions", "/v1/events"} {
		if name, _ := errorOf(s.get(503, path)); name != "unavailable" {
			t.Errorf("GET %s: %s", path, name)
		}
	}
}

func TestHTTPTakesOddIDs(t *testing.T) {
	s := newSite(t)
	for _, id := range []string{"a/b", "..", ".", "a:b", "日本", "a\x00b", "?#%&", " ", "caf\xe9", "caf\xed\xb3\xa9", "~x", "*"} {
		jid := job.JID(id)
		save(t, s.shelf, publish(jid, job.Minion(id))...)
		save(t, s.shelf, returned(jid, job.Minion(id), id))
		for _, path := range []string{"/v1/jobs/" + percent(id), "/v1/jobs/" + percent(id) + "/returns"} {
			got := s.get(200, path)
			if n := len(got["returns"].([]any)); n != 1 {
				t.Errorf("GET %s: %d returns", path, n)
			}
		}
	}
}

// percent encodes every byte, also those that need not be.
func percent(s string) string {
	var b strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&b, "%%%02X", s[i])
	}
	return b.String()
}

// All returns come, each once, in bounded pages, also with ids that no JSON string can hold.
func TestHTTPReturnsArePaged(t *testing.T) {
	s := newSite(t)
	ids := []job.Minion{"a", "b c", "caf\xe9", "caf\xed\xb3\xa9", "~tilde", "日本", "z"}
	save(t, s.shelf, publish(jidA, ids...)...)
	for _, id := range ids {
		save(t, s.shelf, returned(jidA, id, make([]byte, 600<<10)))
	}
	path, seen, pages := "/v1/jobs/"+string(jidA), 0, 0
	for next := ""; ; pages++ {
		got := s.get(200, path+next)
		page := got["returns"].([]any)
		if len(page) > 2 {
			t.Errorf("a page of %d returns of 600 KiB", len(page))
		}
		seen += len(page)
		after, more := got["next"].(string)
		if !more || pages > len(ids) {
			break
		}
		next = "/returns?after=" + url.QueryEscape(after)
	}
	if seen != len(ids) {
		t.Errorf("%d returns on %d pages; want %d, each once", seen, pages+1, len(ids))
	}
}

func TestHTTPMinions(t *testing.T) {
	s := newSite(t)
	for _, id := range []job.Minion{"b", "a", "日本"} {
		save(t, s.shelf, returned(jidA, id, true))
	}
	failed := returned(jidB, "b", false)
	failed.Fun, failed.Failed = "state.apply", true
	save(t, s.shelf, failed)

	first := s.get(200, "/v1/minions?limit=2")
	rows := first["minions"].([]any)
	b := rows[1].(map[string]any)
	if len(rows) != 2 || b["minion"] != "b" || b["fun"] != "state.apply" || b["failed"] != true || b["jid"] != string(jidB) {
		t.Errorf("the first two minions are %v", rows)
	}
	second := s.get(200, "/v1/minions?limit=2&after="+url.QueryEscape(first["next"].(string)))
	rows = second["minions"].([]any)
	if len(rows) != 1 || rows[0].(map[string]any)["minion"] != "日本" || second["next"] != nil {
		t.Errorf("the second page is %v", second)
	}
	if rows := s.get(200, "/v1/minions?fun=state.apply")["minions"].([]any); len(rows) != 1 {
		t.Errorf("%d minions whose last function is state.apply; want 1", len(rows))
	}
}

func eventAt(us uint64, data any) job.Event {
	e := job.Event{Master: "m1", Tag: "salt/x", Data: pack(data)}
	for i := range 8 {
		e.ID[i] = byte(us >> (56 - 8*i))
	}
	return e
}

func TestHTTPEvents(t *testing.T) {
	s := newSite(t)
	for us := range uint64(120) {
		save(t, s.shelf, eventAt(1e15+us, pairs{{"n", us}}))
	}
	got := s.get(200, "/v1/events")
	events := got["events"].([]any)
	newest := events[0].(map[string]any)
	if len(events) != 100 || got["next"] != "100" {
		t.Errorf("%d events, next %v; want 100, though the store is asked for fewer at a time", len(events), got["next"])
	}
	if newest["time"] != "2001-09-09T01:46:40.000119Z" || newest["tag"] != "salt/x" || newest["master"] != "m1" || newest["id"] != "00038d7ea4c680770000000000000000" {
		t.Errorf("the newest event is %v", newest)
	}
	if rest := s.get(200, "/v1/events?cursor=100")["events"].([]any); len(rest) != 20 {
		t.Errorf("%d events on the second page; want 20", len(rest))
	}
}

func TestHTTPEventsAreBoundedInBytes(t *testing.T) {
	s := newSite(t)
	for us := range uint64(200) {
		save(t, s.shelf, eventAt(us, make([]byte, 100<<10)))
	}
	got := s.get(200, "/v1/events?limit=1000")
	if n := len(got["events"].([]any)); n != eventsAtOnce || got["next"] != "50" {
		t.Errorf("%d events of 100 KiB in a page, next %v; want %d", n, got["next"], eventsAtOnce)
	}
}

func TestHTTPIsBusyWhenItIs(t *testing.T) {
	held := &heldReader{shelf: newShelf(), gate: make(chan struct{}), in: make(chan struct{}, 1)}
	s := newSite(t, func(o *HTTPOptions) { o.Jobs, o.MaxInFlight = held, 1 })
	done := make(chan int, 1)
	go func() {
		answer, err := http.Get(s.url + "/v1/minions")
		if err != nil {
			done <- 0
			return
		}
		_ = answer.Body.Close()
		done <- answer.StatusCode
	}()
	<-held.in
	answer, body := s.do("GET", "/v1/jobs")
	if answer.StatusCode != 429 || answer.Header.Get("Retry-After") == "" || !strings.Contains(body, `"busy"`) {
		t.Errorf("a second request: %s %s", answer.Status, body)
	}
	s.get(200, "/healthz")
	close(held.gate)
	if status := <-done; status != 200 {
		t.Errorf("the first request: %d", status)
	}
	s.get(200, "/v1/jobs")
}

// heldReader holds LastFunctions until its gate is closed.
type heldReader struct {
	*shelf
	gate, in chan struct{}
}

func (h *heldReader) LastFunctions(ctx context.Context, fun string) ([]job.LastFunction, error) {
	h.in <- struct{}{}
	<-h.gate
	return h.shelf.LastFunctions(ctx, fun)
}

func TestHTTPSurvivesAPanic(t *testing.T) {
	s := newSite(t)
	s.shelf.fail("secret payload")
	answer, body := s.do("GET", "/v1/jobs")
	if answer.StatusCode != 503 || strings.Contains(body, "secret") || !strings.Contains(body, "internal fault") {
		t.Errorf("a panic is answered with %s %s", answer.Status, body)
	}
	s.shelf.fail(nil)
	s.get(200, "/v1/jobs")
}

func TestHTTPShutdownFinishesRequests(t *testing.T) {
	held := &heldReader{shelf: newShelf(), gate: make(chan struct{}), in: make(chan struct{}, 1)}
	h := NewHTTP(HTTPOptions{Jobs: held, Logger: quiet()})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h.Serve(l)
	status := make(chan int, 1)
	go func() {
		answer, err := http.Get("http://" + l.Addr().String() + "/v1/minions")
		if err != nil {
			status <- 0
			return
		}
		_ = answer.Body.Close()
		status <- answer.StatusCode
	}()
	<-held.in
	down := make(chan error, 1)
	go func() { down <- h.Shutdown(t.Context()) }()
	// New connections are refused while the old request is still being worked on.
	for {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			break
		}
		_ = c.Close()
	}
	close(held.gate)
	if got := <-status; got != 200 {
		t.Errorf("the request under way: status %d", got)
	}
	if err := <-down; err != nil {
		t.Errorf("Shutdown: %v", err)
	}
}

func TestHTTPShutdownCutsOffAtItsDeadline(t *testing.T) {
	held := &heldReader{shelf: newShelf(), gate: make(chan struct{}), in: make(chan struct{}, 1)}
	defer close(held.gate)
	h := NewHTTP(HTTPOptions{Jobs: held, Logger: quiet()})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h.Serve(l)
	go func() { _, _ = http.Get("http://" + l.Addr().String() + "/v1/minions") }()
	<-held.in
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := h.Shutdown(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("Shutdown: %v; want that requests were cut off", err)
	}
}

// A header that is too large, or does not come, ends the connection.
func TestHTTPBoundsHeaders(t *testing.T) {
	h := NewHTTP(HTTPOptions{Jobs: newShelf(), Logger: quiet()})
	for name, d := range map[string]time.Duration{
		"ReadHeaderTimeout": h.server.ReadHeaderTimeout, "ReadTimeout": h.server.ReadTimeout,
		"WriteTimeout": h.server.WriteTimeout, "IdleTimeout": h.server.IdleTimeout,
	} {
		if d <= 0 {
			t.Errorf("%s is not set: net/http then waits for ever", name)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h.Serve(l)
	defer func() { _ = h.Shutdown(t.Context()) }()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	go func() {
		_, _ = fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: localhost\r\nX: %s\r\n\r\n", strings.Repeat("x", 1<<20))
	}()
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("a header of 1 MiB: %s", answer.Status)
	}
}
