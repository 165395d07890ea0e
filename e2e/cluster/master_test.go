package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"saltern/testbed"
	"saltern/testbed/rpcclient"
)

// master is one daemon and connections to it, as the workers of a Salt master have them.
type master struct {
	name   string
	daemon *testbed.Daemon

	mu   sync.Mutex // guards the rest
	idle []*rpcclient.Client
	took map[string][]time.Duration // of the calls of each method, since it was last looked at
}

const (
	// promised is how long a write may take at most, whatever is down.
	promised = 2 * time.Second
	// patience is for what may take as long as the stores' own timeouts.
	patience = 15 * time.Second
)

// call makes one call on a connection of its own.
func (m *master) call(within time.Duration, method string, params ...any) (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	c, err := m.take()
	if err != nil {
		return nil, err
	}
	start := time.Now()
	answer, err := c.Call(ctx, method, params...)
	took := time.Since(start)
	if errors.Is(err, rpcclient.ErrBroken) {
		_ = c.Close()
		return nil, fmt.Errorf("%s of %s within %v: %w", method, m.name, within, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.idle = append(m.idle, c)
	m.took[method] = append(m.took[method], took)
	return answer, err
}

// times gives how long the calls of a method took since the last time, sorted.
func (m *master) times(method string) []time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	took := m.took[method]
	delete(m.took, method)
	slices.Sort(took)
	return took
}

func (m *master) take() (*rpcclient.Client, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := len(m.idle); n > 0 {
		c := m.idle[n-1]
		m.idle = m.idle[:n-1]
		return c, nil
	}
	return rpcclient.Dial("unix", m.daemon.Socket)
}

// kill ends the daemon with SIGKILL.
func (m *master) kill() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.idle {
		_ = c.Close()
	}
	m.idle = nil
	return m.daemon.Kill()
}

func (m *master) prepJID() (string, error) {
	answer, err := m.call(promised, "prep_jid", false, 3600)
	if err != nil {
		return "", err
	}
	jid, ok := answer.(string)
	if !ok {
		return "", fmt.Errorf("prep_jid gives %T", answer)
	}
	if _, twice := minted.LoadOrStore(jid, m.name); twice {
		return "", fmt.Errorf("%s was minted twice", jid)
	}
	return jid, nil
}

// minted has every jid that a daemon gave to any test.
var minted sync.Map

// load is the load of a job, nil where there is no such job.
func (m *master) load(jid string) (map[string]any, error) {
	answer, err := m.call(patience, "get_load", jid)
	if answer == nil || err != nil {
		return nil, err
	}
	load, ok := answer.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("get_load gives %T", answer)
	}
	return load, nil
}

// returns gives what each minion returned, all pages of it.
func (m *master) returns(jid string) (map[string]any, error) {
	all := map[string]any{}
	after := ""
	for {
		answer, err := m.call(patience, "get_jid", jid, after)
		if err != nil {
			return nil, err
		}
		page, ok := answer.([]any)
		if !ok || len(page) != 2 {
			return nil, fmt.Errorf("get_jid gives %T", answer)
		}
		returns, _ := page[0].(map[string]any)
		for minion, r := range returns {
			r, _ := r.(map[string]any)
			if _, twice := all[minion]; twice {
				return nil, fmt.Errorf("get_jid gives %s twice", minion)
			}
			all[minion] = r["return"]
		}
		if page[1] == nil {
			return all, nil
		}
		after, _ = page[1].(string)
	}
}

// list counts how often each job is in the list of all.
func (m *master) list() (map[string]int, error) {
	times := map[string]int{}
	cursor := ""
	for {
		answer, err := m.call(30*time.Second, "list_jobs", map[string]any{"limit": 1000, "cursor": cursor})
		if err != nil {
			return nil, err
		}
		page, ok := answer.([]any)
		if !ok || len(page) != 3 {
			return nil, fmt.Errorf("list_jobs gives %T", answer)
		}
		rows, _ := page[0].([]any)
		for _, row := range rows {
			times[fmt.Sprint(row)]++
		}
		if page[1] == nil {
			return times, nil
		}
		cursor, _ = page[1].(string)
	}
}

// waiting is the number of facts in the daemon's journal that Cassandra does not have.
func (m *master) waiting() (int64, error) {
	answer, err := m.call(patience, "journal_status")
	if err != nil {
		return 0, err
	}
	status, _ := answer.(map[string]any)
	n, ok := number(status["facts"])
	if !ok {
		return 0, fmt.Errorf("journal_status gives %v", answer)
	}
	if dead, _ := number(status["dead"]); dead != 0 {
		return 0, fmt.Errorf("Cassandra refused %d entries of the journal for ever", dead)
	}
	return n, nil
}

func number(v any) (int64, bool) {
	switch n := v.(type) {
	case int64:
		return n, true
	case uint64:
		return int64(n), true
	}
	return 0, false
}

// drained is nil when the journal holds nothing that Cassandra does not have.
func (m *master) drained() error {
	n, err := m.waiting()
	if err == nil && n > 0 {
		err = fmt.Errorf("%d facts wait in the journal of %s", n, m.name)
	}
	return err
}

// get asks the people's side and gives the status with the document.
func (m *master) get(path string, query url.Values) (int, map[string]any, error) {
	answer, err := http.Get("http://" + m.daemon.HTTP + path + "?" + query.Encode())
	if err != nil {
		return 0, nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, nil, err
	}
	var document map[string]any
	if err := json.Unmarshal(text, &document); err != nil {
		return answer.StatusCode, nil, fmt.Errorf("GET %s: %s: %w", path, answer.Status, err)
	}
	return answer.StatusCode, document, nil
}

// events counts the events with a tag.
func (m *master) events(tag string) (int, error) {
	status, document, err := m.get("/v1/events", url.Values{"tag": {tag}})
	if err != nil {
		return 0, err
	}
	if status != http.StatusOK {
		return 0, fmt.Errorf("GET /v1/events: status %d", status)
	}
	rows, _ := document["events"].([]any)
	return len(rows), nil
}

// isUnavailable says whether an answer is that the store cannot be asked.
func isUnavailable(err error) bool {
	var e *rpcclient.Error
	return errors.As(err, &e) && e.Name == "unavailable"
}
