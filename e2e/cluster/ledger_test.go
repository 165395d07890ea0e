package cluster

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"saltern/testbed/rpcclient"
)

// ledger has what was acknowledged, and holds what the daemons answer against it.
type ledger struct {
	mu   sync.Mutex // guards the rest, its jobs too
	jobs map[string]*ran
	tags []string
}

// ran is a job as it was written.
type ran struct {
	minions []string
	returns map[string]string // of those that returned
}

func newLedger() *ledger { return &ledger{jobs: map[string]*ran{}} }

// publish starts a job through a master and gives its jid.
func (l *ledger) publish(m *master, minions ...string) (string, error) {
	jid, err := m.prepJID()
	if err != nil {
		return "", err
	}
	load := map[string]any{"jid": jid, "fun": "test.echo", "tgt": "*", "tgt_type": "glob", "user": "u", "arg": []any{"of " + jid}}
	header := map[string]any{
		"jid": jid, "shape": "publish", "fun": "test.echo", "tgt": "*", "tgt_type": "glob", "user": "u", "keep": 3600,
	}
	if _, err := m.call(promised, "save_load", header, rpcclient.Packed(load), minions); err != nil {
		return "", fmt.Errorf("save_load: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.jobs[jid] = &ran{minions: slices.Sorted(slices.Values(minions)), returns: map[string]string{}}
	return jid, nil
}

// answer writes the return of a minion through a master.
func (l *ledger) answer(m *master, jid, minion string) error {
	value := minion + " of " + jid
	header := map[string]any{"jid": jid, "id": minion, "fun": "test.echo", "retcode": 0, "success": true, "keep": 3600}
	rest := map[string]any{"jid": jid, "id": minion, "fun": "test.echo", "retcode": 0, "success": true}
	got, err := m.call(promised, "save_return",
		header, rpcclient.Packed(value), rpcclient.Packed(rest), rpcclient.Packed(map[string]any{}), nil)
	if err != nil {
		return fmt.Errorf("save_return: %w", err)
	}
	if got != "stored" {
		return fmt.Errorf("save_return answers %v", got)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.jobs[jid].returns[minion] = value
	return nil
}

// fire writes an event, twice, as a sender does that got no answer.
func (l *ledger) fire(m *master, tag string) error {
	id := binary.BigEndian.AppendUint64(nil, uint64(time.Now().UnixMicro()))
	id = append(id, make([]byte, 8)...)
	_, _ = rand.Read(id[8:]) // it does not fail
	event := []any{[]any{id, tag, rpcclient.Packed(map[string]any{"_stamp": "now"}), false}}
	for range 2 {
		if _, err := m.call(promised, "save_events", m.name, event); err != nil {
			return fmt.Errorf("save_events: %w", err)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tags = append(l.tags, tag)
	return nil
}

// run is a job of two minions of which both have returned.
func (l *ledger) run(m *master) (string, error) {
	jid, err := l.publish(m, "m1", "m2")
	if err != nil {
		return "", err
	}
	return jid, errors.Join(l.answer(m, jid, "m1"), l.answer(m, jid, "m2"))
}

// checkJob is nil when a master answers for a job what was acknowledged, no less and no more.
func (l *ledger) checkJob(m *master, jid string) error {
	l.mu.Lock()
	want := ran{minions: l.jobs[jid].minions, returns: maps.Clone(l.jobs[jid].returns)}
	l.mu.Unlock()
	load, err := m.load(jid)
	if err != nil {
		return fmt.Errorf("get_load of %s through %s: %w", jid, m.name, err)
	}
	if got := fmt.Sprint(load["arg"]); got != "[of "+jid+"]" {
		return fmt.Errorf("get_load of %s through %s: arg is %s", jid, m.name, got)
	}
	if got := fmt.Sprint(load["Minions"]); got != fmt.Sprint(want.minions) {
		return fmt.Errorf("get_load of %s through %s: Minions are %s, want %v", jid, m.name, got, want.minions)
	}
	returns, err := m.returns(jid)
	if err != nil {
		return fmt.Errorf("get_jid of %s through %s: %w", jid, m.name, err)
	}
	if len(returns) != len(want.returns) {
		return fmt.Errorf("get_jid of %s through %s: %d returns, want %d", jid, m.name, len(returns), len(want.returns))
	}
	for minion, value := range want.returns {
		if returns[minion] != value {
			return fmt.Errorf("get_jid of %s through %s: %s returned %v", jid, m.name, minion, returns[minion])
		}
	}
	return nil
}

// check is nil when a master answers for everything what was acknowledged, each once.
func (l *ledger) check(m *master) error {
	l.mu.Lock()
	jids, tags := slices.Sorted(maps.Keys(l.jobs)), slices.Clone(l.tags)
	l.mu.Unlock()
	for _, jid := range jids {
		if err := l.checkJob(m, jid); err != nil {
			return err
		}
	}
	listed, err := m.list()
	if err != nil {
		return fmt.Errorf("list_jobs through %s: %w", m.name, err)
	}
	for _, jid := range jids {
		if listed[jid] != 1 {
			return fmt.Errorf("list_jobs through %s has %s %d times", m.name, jid, listed[jid])
		}
	}
	for _, tag := range tags {
		n, err := m.events(tag)
		if err != nil {
			return err
		}
		if n != 1 {
			return fmt.Errorf("events through %s have %s %d times", m.name, tag, n)
		}
	}
	return nil
}
