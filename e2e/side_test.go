package e2e

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	"saltern/testbed"
)

// side is a master, and the jobs that it was given by a name that both sides share.
type side struct {
	name string
	*testbed.Salt

	mu      sync.Mutex
	jids    map[string]string // label → jid
	answers map[string]any    // what was asked → the normalised answer
}

// note keeps a normalised answer for compare.
func (s *side) note(what string, answer any) {
	answer = s.normal(answer)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[what] = answer
}

// patience bounds one command line.
const patience = 2 * time.Minute

var shownJid = regexp.MustCompile(`(?:jid: |job ID: )(\d{20}(?:_\d+)?)`)

// salt runs the salt command, keeps the job's id under the label and gives what was printed after the line with it.
func (s *side) salt(ctx context.Context, label string, args ...string) (*testbed.Output, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	out, err := s.Run(ctx, "salt", append([]string{"--show-jid", "--out=json"}, args...)...)
	if err != nil {
		return nil, err
	}
	found := shownJid.FindStringSubmatch(out.Stdout + out.Stderr)
	if found == nil {
		return out, fmt.Errorf("salt %q shows no jid: code %d, stdout %q, stderr %q", args, out.Code, out.Stdout, out.Stderr)
	}
	s.label(label, found[1])
	return out, nil
}

// label names a job, so that it can be compared with that of the same name on the other side. The label "" is for
// jobs that are not compared.
func (s *side) label(label, jid string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.jids[label] = jid
}

// labels are the names of the jobs to compare, sorted.
func (s *side) labels() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Sorted(maps.Keys(s.jids)), func(label string) bool { return label == "" })
}

// jid is the id of the job with that label.
func (s *side) jid(label string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.jids[label] == "" {
		panic("e2e: no job was labelled " + label)
	}
	return s.jids[label]
}

// runner gives what a salt-run printed.
func (s *side) runner(ctx context.Context, args ...string) (*testbed.Output, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return s.Run(ctx, "salt-run", append([]string{"--out=json"}, args...)...)
}

// ask gives the decoded answer of a salt-run, which has to succeed.
func (s *side) ask(ctx context.Context, args ...string) (any, error) {
	out, err := s.runner(ctx, args...)
	if err != nil {
		return nil, err
	}
	var answer any
	if err := out.JSON(&answer); err != nil {
		return nil, fmt.Errorf("%s: salt-run %q: %w", s.name, args, err)
	}
	return answer, nil
}

// must is ask in a test of one side.
func (s *side) must(t *testing.T, args ...string) any {
	t.Helper()
	answer, err := s.ask(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// call gives the answer of a salt-call on a minion.
func (s *side) call(ctx context.Context, id string, args ...string) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	out, err := s.Call(ctx, id, append([]string{"--output=json"}, args...)...)
	if err != nil {
		return nil, err
	}
	var answer map[string]any
	if err := out.JSON(&answer); err != nil {
		return nil, fmt.Errorf("%s: salt-call %q: %w", s.name, args, err)
	}
	return answer["local"], nil
}
