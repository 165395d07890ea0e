package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/tinylib/msgp/msgp"

	"saltern/configs"
)

const journalUsage = `usage: saltern journal status|list|replay|discard [flags]

status        what waits for Cassandra, since when, and how much room is left
list          the entries, oldest first; --dead for those that Cassandra refused for ever
replay        send the entries that are still there to Cassandra again: for one that lost what it had
discard SEQ   remove an entry that Cassandra refused for ever; its facts are lost
`

// journalTimeout bounds one call.
const journalTimeout = 30 * time.Second

// maxJournalAnswer bounds an answer: a thousand entries of a thousand jobs each.
const maxJournalAnswer = 64 << 20

func runJournal(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	return subcommands{"journal", journalUsage, []command{
		{name: "status", run: journalStatus}, {name: "list", run: journalList},
		{name: "replay", run: journalReplay}, {name: "discard", run: journalDiscard},
	}}.run(ctx, args, stdout, stderr)
}

// journalAddress asks the daemon on the address that serve would listen on, unless another is named.
func journalAddress(flag string) string {
	if flag != "" {
		return flag
	}
	c := configs.Default()
	c.Resolve(configs.ProcessEnv())
	return c.Listen[0]
}

func callJournal(ctx context.Context, address, method string, params ...any) (any, error) {
	packed := msgp.AppendArrayHeader(nil, uint32(len(params)))
	for _, p := range params {
		var err error
		if packed, err = msgp.AppendIntf(packed, p); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, journalTimeout)
	defer cancel()
	address = journalAddress(address)
	result, err := callRPC(ctx, address, method, packed, maxJournalAnswer)
	var refused *refusedError
	switch {
	case errors.As(err, &refused) && refused.name == "not-found":
		return nil, &ExitError{Code: ExitNotFound, Err: err}
	case errors.As(err, &refused):
		return nil, &ExitError{Code: ExitRefused, Err: err}
	case err != nil:
		return nil, &ExitError{Code: ExitUnreachable, Err: fmt.Errorf(
			"the daemon at %s cannot be asked: %w (another address: --address unix:PATH)", address, err)}
	}
	return result, nil
}

func journalStatus(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := newFlags("journal status", "", stderr)
	address := flags.String("address", "", "of the daemon, unix:`PATH` or tcp:HOST:PORT")
	asJSON := flags.Bool("json", false, "one JSON document")
	if err := parseFlags(flags, args, 0); err != nil {
		return err
	}
	result, err := callJournal(ctx, *address, "journal_status")
	if err != nil {
		return err
	}
	st, _ := result.(map[string]any)
	if *asJSON {
		return writeJSON(stdout, st)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "waiting   %v facts in %v entries", st["facts"], st["entries"])
	if oldest, some := momentOf(st["oldest"]); some {
		fmt.Fprintf(&b, ", the oldest of %s", oldest.Local().Format(time.DateTime))
	}
	fmt.Fprintf(&b, "\nbytes     %v of %v\nreplay    %v facts a second\nrefused   %v entries for ever\n",
		st["bytes"], st["quota"], st["rate"], st["dead"])
	_, err = io.WriteString(stdout, b.String())
	return err
}

func momentOf(seconds any) (time.Time, bool) {
	s, some := seconds.(float64)
	return time.UnixMicro(int64(s * 1e6)), some
}

func journalList(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := newFlags("journal list", "", stderr)
	address := flags.String("address", "", "of the daemon, unix:`PATH` or tcp:HOST:PORT")
	asJSON := flags.Bool("json", false, "one JSON document")
	dead := flags.Bool("dead", false, "those that Cassandra refused for ever")
	after := flags.Uint64("after", 0, "those after the entry `SEQ`")
	limit := flags.Int("limit", 100, "at most `N`")
	if err := parseFlags(flags, args, 0); err != nil {
		return err
	}
	result, err := callJournal(ctx, *address, "journal_entries", *after, *limit, *dead)
	if err != nil {
		return err
	}
	entries, _ := result.([]any)
	if *asJSON {
		return writeJSON(stdout, map[string]any{"entries": entries})
	}
	if len(entries) == 0 {
		_, err := fmt.Fprintln(stdout, "no entries")
		return err
	}
	t := table{columns: []column{
		{title: "SEQ"}, {title: "TIME"}, {title: "STATE"}, {title: "FACTS"}, {title: "BYTES"},
		{title: "JOBS", least: 20}, {title: "REASON", least: 20},
	}}
	for _, e := range entries {
		e, _ := e.(map[string]any)
		at := ""
		if m, some := momentOf(e["at"]); some {
			at = m.Local().Format(time.DateTime)
		}
		var jobs []string
		list, _ := e["jobs"].([]any)
		for _, jid := range list {
			jobs = append(jobs, fmt.Sprint(jid))
		}
		t.add(fmt.Sprint(e["seq"]), at, fmt.Sprint(e["state"]), fmt.Sprint(e["facts"]), fmt.Sprint(e["bytes"]),
			strings.Join(jobs, " "), fmt.Sprint(e["reason"]))
	}
	return t.write(stdout, terminalWidth(stdout))
}

func journalReplay(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := newFlags("journal replay", "", stderr)
	address := flags.String("address", "", "of the daemon, unix:`PATH` or tcp:HOST:PORT")
	since := &moment{now: time.Now}
	flags.Var(since, "since", "entries from `TIME` on: 10m (ago), RFC 3339 or a date; all of them when not given")
	if err := parseFlags(flags, args, 0); err != nil {
		return err
	}
	from := 0.0
	if !since.IsZero() {
		from = float64(since.UnixMicro()) / 1e6
	}
	n, err := callJournal(ctx, *address, "journal_replay", from)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "%v entries are sent again\n", n)
	return err
}

func journalDiscard(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := newFlags("journal discard", "SEQ", stderr)
	address := flags.String("address", "", "of the daemon, unix:`PATH` or tcp:HOST:PORT")
	yes := flags.Bool("yes", false, "do not ask")
	if err := parseFlags(flags, args, 1); err != nil {
		return err
	}
	seq, err := strconv.ParseUint(flags.Arg(0), 10, 64)
	if err != nil {
		return usageError("%q is no number of an entry; saltern journal list --dead has them", flags.Arg(0))
	}
	if !*yes && !confirmed(os.Stdin, stderr, fmt.Sprintf("Entry %d will be lost for ever. Discard it?", seq)) {
		return &ExitError{Code: ExitFailed, Err: errors.New("nothing was discarded")}
	}
	if _, err := callJournal(ctx, *address, "journal_discard", seq); err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "entry %d is discarded\n", seq)
	return err
}

// confirmed asks a question that only yes answers.
func confirmed(from io.Reader, to io.Writer, question string) bool {
	_, _ = fmt.Fprintf(to, "%s (yes/no) ", question)
	var answer string
	_, _ = fmt.Fscanln(from, &answer)
	return answer == "yes"
}
