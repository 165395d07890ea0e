package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/tinylib/msgp/msgp"

	"saltern/job"
	"saltern/move"
)

// importer hands what a source gives over to the daemon, many facts at a time.
type importer struct {
	conn   *rpcConn // nil for a dry run
	report *importReport
	state  *importState
	keep   job.Keep
	dryRun bool

	facts  []job.Fact
	bytes  int
	cursor string
	last   job.JID // counted as a job already
}

// Bounds of one call: one fsync of the daemon for so much, and no more in memory here.
const (
	importFacts = 1000
	importBytes = 4 << 20
)

func (i *importer) take(ctx context.Context, item move.Item) error {
	for _, f := range item.Facts {
		if !i.wanted(f) {
			continue
		}
		i.facts = append(i.facts, f)
		i.bytes += f.Size()
	}
	if item.Cursor != "" {
		i.cursor = item.Cursor
	}
	i.report.progress()
	if len(i.facts) >= importFacts || i.bytes >= importBytes {
		return i.flush(ctx)
	}
	return ctx.Err()
}

// wanted counts a fact, and says no to one of a job that would be removed at once.
func (i *importer) wanted(f job.Fact) bool {
	jid := f.Job()
	isNew := jid != "" && jid != i.last
	if isNew {
		i.last = jid
	}
	if jid != "" && move.Expired(jid, i.keep, time.Now()) {
		if isNew {
			i.report.Expired++
		}
		return false
	}
	if isNew {
		i.report.Jobs++
	}
	switch f.(type) {
	case job.Return:
		i.report.Returns++
	case job.Event:
		i.report.Events++
	}
	return true
}

// flush sends what is held, and remembers how far it came.
func (i *importer) flush(ctx context.Context) error {
	if len(i.facts) > 0 && !i.dryRun {
		if err := i.send(ctx, i.facts); err != nil {
			return err
		}
	}
	i.facts, i.bytes = nil, 0
	if i.dryRun {
		return nil
	}
	return i.state.advance(i.cursor)
}

// send stores facts. Where the daemon refuses a value, it is found by halving, and told.
func (i *importer) send(ctx context.Context, facts []job.Fact) error {
	params := msgp.AppendArrayHeader(nil, 1)
	params = msgp.AppendArrayHeader(params, uint32(len(facts)))
	for _, f := range facts {
		params = appendFact(params, f)
	}
	result, err := i.conn.call(ctx, "import", params)
	var refused *refusedError
	if errors.As(err, &refused) && (refused.name == "invalid" || refused.name == "too-large") {
		if len(facts) == 1 {
			i.report.bad(factName(facts[0]), refused)
			return nil
		}
		half := len(facts) / 2
		if err := i.send(ctx, facts[:half]); err != nil {
			return err
		}
		return i.send(ctx, facts[half:])
	}
	if errors.As(err, &refused) && refused.name == "busy" {
		select {
		case <-time.After(100 * time.Millisecond):
			return i.send(ctx, facts)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if err != nil {
		return err
	}
	return i.report.count(result)
}

// factName tells which fact it is, without its payload.
func factName(f job.Fact) string {
	switch f := f.(type) {
	case job.Return:
		return fmt.Sprintf("the return of %q for job %q", f.Minion, f.JID)
	case job.Load:
		return fmt.Sprintf("the load of job %q", f.JID)
	case job.Event:
		return fmt.Sprintf("the event %x", f.ID)
	default:
		return fmt.Sprintf("a part of job %q", f.Job())
	}
}

// importReport is what became of an import.
type importReport struct {
	Jobs, Returns, Events int
	// Expired are jobs left out because they would be removed at once, Unreadable what could not be
	// taken over.
	Expired, Unreadable int
	// Stored and There count facts: loads, lists of minions, returns, end times, events.
	Stored, There, Dropped int64

	stderr io.Writer
	quiet  bool
	begun  time.Time
	told   time.Time
}

func (r *importReport) bad(where string, err error) {
	r.Unreadable++
	fmt.Fprintf(r.stderr, "not taken over: %s: %s\n", harmless(where), harmless(err.Error()))
}

func (r *importReport) progress() {
	if now := time.Now(); !r.quiet && now.Sub(r.told) >= 2*time.Second {
		if !r.told.IsZero() {
			rate := float64(r.Jobs+r.Expired) / now.Sub(r.begun).Seconds()
			fmt.Fprintf(r.stderr, "%d jobs, %d returns, %.0f jobs a second\n", r.Jobs, r.Returns, rate)
		}
		r.told = now
	}
}

// count adds what the daemon answered.
func (r *importReport) count(result []byte) error {
	value, _, err := msgp.ReadMapStrIntfBytes(result, nil)
	if err != nil {
		return fmt.Errorf("the answer to import: %w", err)
	}
	for name, to := range map[string]*int64{"stored": &r.Stored, "there": &r.There, "dropped": &r.Dropped} {
		n, ok := value[name].(int64)
		if !ok {
			return fmt.Errorf("the answer to import has no number %q: is the daemon of this version?", name)
		}
		*to += n
	}
	return nil
}

func (r *importReport) write(w io.Writer, asJSON, dryRun bool) error {
	if asJSON {
		return writeJSON(w, map[string]any{
			"dry_run": dryRun, "jobs": r.Jobs, "returns": r.Returns, "events": r.Events, "expired": r.Expired,
			"unreadable": r.Unreadable, "stored": r.Stored, "there": r.There, "dropped": r.Dropped,
		})
	}
	_, err := fmt.Fprintf(w, "read      %d jobs, %d returns, %d events\n", r.Jobs, r.Returns, r.Events)
	if err == nil && dryRun {
		_, err = fmt.Fprintln(w, "stored    nothing: this was a dry run")
	} else if err == nil {
		_, err = fmt.Fprintf(w, "stored    %d facts; %d were there already, %d belong to jobs without a cache\n", r.Stored, r.There, r.Dropped)
	}
	if err == nil && r.Expired > 0 {
		_, err = fmt.Fprintf(w, "left out  %d jobs that are older than they are kept (--keep)\n", r.Expired)
	}
	if err == nil && r.Unreadable > 0 {
		_, err = fmt.Fprintf(w, "failed    %d\n", r.Unreadable)
	}
	return err
}

// importState is the file that says how far an import came.
type importState struct {
	path   string
	Source string `json:"source"`
	Cursor string `json:"cursor"`
}

// openImportState reads the file; without a path nothing is remembered.
func openImportState(path, source string) (*importState, error) {
	s := &importState{path: path, Source: source}
	if path == "" {
		return s, nil
	}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return nil, &ExitError{Code: ExitUsage, Err: err}
	}
	if err := json.Unmarshal(b, s); err != nil {
		return nil, usageError("%s is no state of an import (%w): remove it to begin anew", path, err)
	}
	if s.Source != source {
		return nil, usageError("%s is the state of the import of %s, not of %s: remove it, or name another", path, s.Source, source)
	}
	return s, nil
}

func (s *importState) advance(cursor string) error {
	if s.path == "" || cursor == "" || cursor == s.Cursor {
		return nil
	}
	s.Cursor = cursor
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	// A whole file or the one before, whatever happens.
	draft := s.path + ".new"
	if err := os.WriteFile(draft, b, 0o600); err != nil {
		return err
	}
	return os.Rename(draft, filepath.Clean(s.path))
}

// done removes the file: a further import looks at everything again, and finds what is new.
func (s *importState) done() error {
	if s.path == "" {
		return nil
	}
	if err := os.Remove(s.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
