package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/tinylib/msgp/msgp"

	"saltern/job"
	"saltern/move"
)

func exportLocalCache(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := newFlags("export local_cache", "DIR", stderr)
	address := flags.String("address", "", "of the daemon, unix:`PATH` or tcp:HOST:PORT")
	hashType := flags.String("hash-type", "sha256", "`NAME` of the master's hash_type")
	quiet := flags.Bool("quiet", false, "no progress")
	from, to := moment{now: time.Now}, moment{now: time.Now}
	flags.Var(&from, "from", "not before `TIME`: a span before now (90s, 2h, 7d), a date, or RFC 3339")
	flags.Var(&to, "to", "before `TIME`")
	if err := parseFlags(flags, args, 1); err != nil {
		return err
	}
	folder, err := move.NewFolder(flags.Arg(0), *hashType)
	if err != nil {
		return &ExitError{Code: ExitUsage, Err: err}
	}
	conn, err := dialRPC(ctx, *address)
	if err != nil {
		return err
	}
	defer conn.Close()
	e := &folderExport{ctx: ctx, conn: conn, folder: folder, stderr: stderr, quiet: *quiet, told: time.Now()}
	if err := e.run(from, to); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(stdout, "%d jobs, %d returns written, %d returns were there\n", e.jobs, e.returns, e.there); err != nil {
		return err
	}
	if e.bad > 0 {
		return &ExitError{Code: ExitFailed, Err: fmt.Errorf("%d could not be written; each is named above", e.bad)}
	}
	return nil
}

// folderExport writes jobs into a local_cache. It holds a page of the list, and one of returns.
type folderExport struct {
	ctx    context.Context
	conn   *rpcConn
	folder *move.Folder
	stderr io.Writer
	quiet  bool
	told   time.Time

	jobs, returns, there, bad int
}

// exportPage is how many jobs are listed at a time; their loads come with them.
const exportPage = 200

func (e *folderExport) run(from, to moment) error {
	cursor := ""
	for {
		header := map[string]any{"limit": exportPage, "loads": true}
		for key, m := range map[string]moment{"from": from, "to": to} {
			if !m.IsZero() {
				header[key] = float64(m.UnixMicro()) / 1e6
			}
		}
		if cursor != "" {
			header["cursor"] = cursor
		}
		params, err := msgp.AppendMapStrIntf(msgp.AppendArrayHeader(nil, 1), header)
		if err != nil {
			return err
		}
		page, err := e.conn.call(e.ctx, "list_jobs", params)
		if err != nil {
			return err
		}
		if cursor, err = e.page(page); err != nil || cursor == "" {
			return err
		}
	}
}

// page writes the jobs of [rows, next, hidden].
func (e *folderExport) page(b []byte) (next string, err error) {
	parts, err := cutArray(b)
	if err != nil || len(parts) != 3 {
		return "", errors.Join(err, errors.New("the answer to list_jobs is none"))
	}
	rows, err := cutArray(parts[0])
	if err != nil {
		return "", err
	}
	for _, row := range rows {
		if err := e.job(row); err != nil {
			return "", err
		}
	}
	if msgp.IsNil(parts[1]) {
		return "", nil
	}
	next, _, err = msgp.ReadStringBytes(parts[1])
	return next, err
}

// job writes the job of a row [jid, load, minions, end time], and its returns.
func (e *folderExport) job(row []byte) error {
	parts, err := cutArray(row)
	if err != nil || len(parts) != 4 {
		return errors.Join(err, errors.New("a row of list_jobs is none"))
	}
	jid, _, err := msgp.ReadStringBytes(parts[0])
	if err != nil {
		return err
	}
	load := parts[1]
	if msgp.IsNil(load) {
		load = nil
	}
	ids, err := cutArray(parts[2])
	if err != nil {
		return err
	}
	minions := make([]job.Minion, len(ids))
	for i, id := range ids {
		s, _, err := msgp.ReadStringBytes(id)
		if err != nil {
			return err
		}
		minions[i] = job.Minion(s)
	}
	endTime := ""
	if !msgp.IsNil(parts[3]) {
		if endTime, _, err = msgp.ReadStringBytes(parts[3]); err != nil {
			return err
		}
	}
	if err := e.folder.Job(job.JID(jid), load, minions, endTime); err != nil {
		return err
	}
	e.jobs++
	e.progress()
	return e.givenBack(jid)
}

func (e *folderExport) givenBack(jid string) error {
	after := ""
	for {
		params := msgp.AppendString(msgp.AppendArrayHeader(nil, 2), jid)
		answer, err := e.conn.call(e.ctx, "get_jid", msgp.AppendString(params, after))
		if err != nil {
			return err
		}
		parts, err := cutArray(answer)
		if err != nil || len(parts) != 2 {
			return errors.Join(err, errors.New("the answer to get_jid is none"))
		}
		if err := e.returnsOf(jid, parts[0]); err != nil {
			return err
		}
		if msgp.IsNil(parts[1]) {
			return nil
		}
		if after, _, err = msgp.ReadStringBytes(parts[1]); err != nil {
			return err
		}
	}
}

func (e *folderExport) returnsOf(jid string, b []byte) error {
	n, b, err := msgp.ReadMapHeaderBytes(b)
	if err != nil {
		return err
	}
	for range n {
		var minion string
		if minion, b, err = msgp.ReadStringBytes(b); err != nil {
			return err
		}
		rest, err := msgp.Skip(b)
		if err != nil {
			return err
		}
		isNew, err := e.folder.Return(job.JID(jid), job.Minion(minion), b[:len(b)-len(rest)])
		switch b = rest; {
		case errors.Is(err, move.ErrNoFolder):
			e.bad++
			fmt.Fprintf(e.stderr, "not written: the return of %q for job %s: %v\n", minion, harmless(jid), err)
		case err != nil:
			return err
		case isNew:
			e.returns++
		default:
			e.there++
		}
	}
	return nil
}

func (e *folderExport) progress() {
	if now := time.Now(); !e.quiet && now.Sub(e.told) >= 2*time.Second {
		e.told = now
		fmt.Fprintf(e.stderr, "%d jobs, %d returns\n", e.jobs, e.returns)
	}
}

// cutArray gives the elements of a packed array, packed.
func cutArray(b []byte) ([][]byte, error) {
	n, b, err := msgp.ReadArrayHeaderBytes(b)
	if err != nil {
		return nil, err
	}
	var all [][]byte
	for range n {
		rest, err := msgp.Skip(b)
		if err != nil {
			return nil, err
		}
		all = append(all, b[:len(b)-len(rest)])
		b = rest
	}
	return all, nil
}
