// Package cli has the subcommands of saltern, one file each. wire.go is the only file of the project
// that names every concrete tier.
package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// command is a subcommand. Its run gives nil, or an error that Main makes an exit code of.
type command struct {
	name, summary string
	run           func(ctx context.Context, args []string, stdout, stderr io.Writer) error
}

func commands() []command {
	return []command{
		{"serve", "run the daemon", runServe},
		{"demo", "a real Salt master and minions on Saltern, in a folder of their own", runDemo},
		{"jobs", "list jobs, or show one", runJobs},
		{"events", "show events", runEvents},
		{"journal", "what waits for Cassandra: status, list, replay, discard", runJournal},
		{"import", "take over the jobs of another job store: local_cache, redis, cassandra", runImport},
		{"export", "write jobs and events as JSON lines, or into a local_cache", runExport},
		{"backup", "copy the embedded store while it runs", runBackup},
		{"restore", "make a store of a backup", runRestore},
		{"schema", "print, apply or check the tables in Cassandra", runSchema},
		{"slow", "the slowest calls of the daemon, step by step", runSlow},
		{"explain", "what each tier holds of a job", runExplain},
		{"log", "say or change from which level on the daemon logs", runLog},
		{"doctor", "say what is wrong with a set-up and what to do", runDoctor},
		{"version", "print the version", runVersion},
	}
}

// Main runs a command line and gives the exit code; see ExitError for what the codes mean.
func Main(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	err := run(ctx, args, stdout, stderr)
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return ExitOK
	}
	var exit *ExitError
	if !errors.As(err, &exit) {
		exit = &ExitError{Code: ExitFailed, Err: err}
	}
	if exit.Err != nil {
		fmt.Fprintf(stderr, "saltern: %v\n", exit.Err)
	}
	return exit.Code
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) == 0 {
		usage(stderr)
		return &ExitError{Code: ExitUsage, Err: errors.New("a command is needed")}
	}
	switch args[0] {
	case "help", "-h", "-help", "--help":
		usage(stdout)
		return nil
	case "-version", "--version":
		args = []string{"version"}
	}
	for _, c := range commands() {
		if c.name == args[0] {
			return c.run(ctx, args[1:], stdout, stderr)
		}
	}
	usage(stderr)
	return &ExitError{Code: ExitUsage, Err: fmt.Errorf("no command %q", args[0])}
}

func usage(w io.Writer) {
	var b strings.Builder
	b.WriteString("Saltern keeps the jobs of Salt masters.\n\nusage: saltern COMMAND [flags]\n\n")
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, c := range commands() {
		fmt.Fprintf(t, "  %s\t%s\n", c.name, c.summary)
	}
	_ = t.Flush() // a strings.Builder takes everything
	b.WriteString("\nsaltern COMMAND -h lists the flags of a command.\n")
	_, _ = io.WriteString(w, b.String())
}
