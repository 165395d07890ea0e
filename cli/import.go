package cli

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"

	"saltern/job"
	"saltern/move"
)

const importUsage = `usage: saltern import local_cache DIR [flags]
       saltern import redis URL [flags]
       saltern import cassandra KEYSPACE --hosts HOST,... [flags]

Takes over the jobs of another job store of Salt through a running daemon. It is safe to run while
the master works, and to run again: what is there already stays as it is.

local_cache  the master's cachedir, as /var/cache/salt/master
redis        what Salt's redis returner wrote: redis://[USER:PASSWORD@]HOST:PORT/DB, rediss://, unix://PATH
             (the environment variable SALTERN_IMPORT_URL instead of - keeps a password out of ps)
cassandra    the tables of Salt's cassandra_cql returner; its keyspace is salt
`

func runImport(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	return subcommands{"import", importUsage, []command{
		{name: "local_cache", run: importLocalCache},
		{name: "redis", run: importRedis},
		{name: "cassandra", run: importCassandra},
	}}.run(ctx, args, stdout, stderr)
}

// importFlags are the flags of all kinds.
type importFlags struct {
	address, state, master, saltConfig, keep *string
	dryRun, quiet, asJSON                    *bool
}

func newImportFlags(flags *flag.FlagSet) *importFlags {
	return &importFlags{
		address: flags.String("address", "", "of the daemon, unix:`PATH` or tcp:HOST:PORT"),
		state:   flags.String("state", "", "`FILE` that remembers how far it came, to go on there after a break"),
		master:  flags.String("master", "", "`ID` of the master whose jobs they are (default: as the daemon is configured)"),
		keep: flags.String("keep", "", "how long the jobs are kept after they ran, as `SPAN` (36h, 30d); 0 is for ever\n"+
			"(default: keep_jobs_seconds of the master's configuration, else 24h). Older ones are left out"),
		saltConfig: flags.String("salt-config", "/etc/salt", "`DIR` of the master's configuration"),
		dryRun:     flags.Bool("dry-run", false, "read everything and store nothing"),
		quiet:      flags.Bool("quiet", false, "no progress"),
		asJSON:     flags.Bool("json", false, "the result as one JSON document"),
	}
}

// options makes what the reader needs. What cannot be read is told on stderr.
func (f *importFlags) options(r *importReport) (move.Options, error) {
	o := move.Options{Master: *f.master, Bad: r.bad}
	keep, err := f.keepSeconds()
	o.Keep = keep
	return o, err
}

// defaultKeepSeconds is Salt's own default of keep_jobs_seconds.
const defaultKeepSeconds = 24 * 60 * 60

func (f *importFlags) keepSeconds() (job.Keep, error) {
	if *f.keep == "0" {
		return job.KeepForever, nil
	}
	if *f.keep != "" {
		span, err := parseSpan(*f.keep)
		if err != nil || span < time.Second {
			return 0, usageError("--keep %q: a span as 36h or 30d is needed, or 0 for ever", *f.keep)
		}
		return job.Keep(span / time.Second), nil
	}
	c, err := readSaltConfig(*f.saltConfig, "master")
	if errors.Is(err, fs.ErrNotExist) {
		return defaultKeepSeconds, nil
	}
	if err != nil {
		return 0, usageError("%w (--keep SPAN says how long jobs are kept without that file)", err)
	}
	if seconds, is := c.opts["keep_jobs_seconds"].(int); is && seconds >= 0 {
		return job.Keep(seconds), nil
	}
	if hours, is := c.opts["keep_jobs"].(int); is && hours >= 0 { // its name up to Salt 3005
		return job.Keep(hours * 60 * 60), nil
	}
	return defaultKeepSeconds, nil
}

func importLocalCache(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := newFlags("import local_cache", "DIR", stderr)
	f := newImportFlags(flags)
	if err := parseFlags(flags, args, 1); err != nil {
		return err
	}
	source, err := move.OpenLocalCache(flags.Arg(0))
	if err != nil {
		return &ExitError{Code: ExitUsage, Err: err}
	}
	return f.run(ctx, "local_cache "+flags.Arg(0), source, stdout, stderr)
}

func importRedis(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := newFlags("import redis", "URL", stderr)
	f := newImportFlags(flags)
	if err := parseFlags(flags, args, 1); err != nil {
		return err
	}
	url := flags.Arg(0)
	if url == "-" {
		url = os.Getenv("SALTERN_IMPORT_URL")
	}
	source, err := move.OpenRedis(url)
	if err != nil {
		return &ExitError{Code: ExitUsage, Err: err}
	}
	return f.run(ctx, "redis", source, stdout, stderr)
}

func importCassandra(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := newFlags("import cassandra", "KEYSPACE", stderr)
	f := newImportFlags(flags)
	hosts := flags.String("hosts", "127.0.0.1", "`HOSTS` of the cluster, with commas between them")
	port := flags.Int("port", 9042, "`PORT` of CQL")
	user := flags.String("user", "", "`USER` of Cassandra")
	password := flags.String("password-file", "", "`FILE` with the password")
	useTLS := flags.Bool("tls", false, "connect with TLS")
	ca := flags.String("ca-file", "", "`FILE` with the certificates to trust (default: those of the system)")
	if err := parseFlags(flags, args, 1); err != nil {
		return err
	}
	o := move.CassandraOptions{Hosts: strings.Split(*hosts, ","), Port: *port, User: *user, Keyspace: flags.Arg(0)}
	if *password != "" {
		b, err := os.ReadFile(*password)
		if err != nil {
			return &ExitError{Code: ExitUsage, Err: err}
		}
		o.Password = strings.TrimRight(string(b), "\r\n")
	}
	if *useTLS || *ca != "" {
		config, err := trusting(*ca)
		if err != nil {
			return &ExitError{Code: ExitUsage, Err: err}
		}
		o.TLS = &gocql.SslOptions{Config: config, EnableHostVerification: true}
	}
	source, err := move.OpenCassandra(o)
	if err != nil {
		return &ExitError{Code: ExitUnreachable, Err: fmt.Errorf("cassandra at %s: %w", *hosts, err)}
	}
	return f.run(ctx, "cassandra "+o.Keyspace, source, stdout, stderr)
}

// trusting is TLS that trusts the certificates in a file.
func trusting(file string) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if file == "" {
		return c, nil
	}
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	c.RootCAs = x509.NewCertPool()
	if !c.RootCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s has no certificate in PEM", file)
	}
	return c, nil
}

func (f *importFlags) run(ctx context.Context, what string, source move.Source, stdout, stderr io.Writer) (err error) {
	defer func() { err = errors.Join(err, source.Close()) }()
	r := &importReport{stderr: stderr, quiet: *f.quiet, begun: time.Now()}
	o, err := f.options(r)
	if err != nil {
		return err
	}
	state, err := openImportState(*f.state, what)
	if err != nil {
		return err
	}
	o.After = state.Cursor
	to := &importer{report: r, state: state, keep: o.Keep, dryRun: *f.dryRun}
	if !*f.dryRun {
		if to.conn, err = dialRPC(ctx, *f.address); err != nil {
			return err
		}
		defer to.conn.Close()
	}
	err = source.Each(ctx, o, func(item move.Item) error { return to.take(ctx, item) })
	if err == nil {
		err = to.flush(ctx)
	}
	if err == nil && !*f.dryRun {
		err = state.done()
	}
	if e := r.write(stdout, *f.asJSON, *f.dryRun); e != nil {
		return e
	}
	if err != nil {
		hint := "run it again: what is there already is passed over"
		if *f.state != "" {
			hint = "run it again to go on"
		}
		var exit *ExitError
		if errors.As(err, &exit) {
			return &ExitError{Code: exit.Code, Err: fmt.Errorf("%w (%s)", exit.Err, hint)}
		}
		return fmt.Errorf("stopped: %w (%s)", err, hint)
	}
	if r.Unreadable > 0 {
		return &ExitError{Code: ExitFailed, Err: fmt.Errorf("%d could not be taken over; each is named above", r.Unreadable)}
	}
	return nil
}
