package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"saltern/configs"
	"saltern/tiers/cassandra"
)

const schemaUsage = `usage: saltern schema print --config FILE
       saltern schema apply --config FILE
       saltern schema check --config FILE

print   write the CQL that makes keyspace and tables, for whoever may run it
apply   make keyspace and tables, or migrate them; run it from one machine at a time, before the daemons are upgraded
check   say whether the tables are there in a version that this saltern can work with
`

// runSchema is the only way to the tables: the daemon never makes nor changes them.
func runSchema(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	return subcommands{"schema", schemaUsage, []command{
		{name: "print", run: schemaPrint},
		{name: "apply", run: schemaDo("apply", cassandra.ApplySchema)},
		{name: "check", run: schemaDo("check", cassandra.CheckSchema)},
	}}.run(ctx, args, stdout, stderr)
}

func schemaPrint(_ context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := schemaOptions("print", args, stderr)
	if err != nil {
		return err
	}
	cql, err := cassandra.Schema(o)
	if err != nil {
		return err
	}
	_, err = io.WriteString(stdout, strings.Join(cql, ";\n")+";\n")
	return err
}

// schemaDo is a command that does something with the tables, after which they have our version.
func schemaDo(
	command string, do func(context.Context, cassandra.Options) error,
) func(context.Context, []string, io.Writer, io.Writer) error {
	return func(ctx context.Context, args []string, stdout, stderr io.Writer) error {
		o, err := schemaOptions(command, args, stderr)
		if err != nil {
			return err
		}
		err = do(ctx, o)
		switch {
		case errors.Is(err, cassandra.ErrSchema):
			return &ExitError{Code: ExitNotFound, Err: err}
		case err != nil:
			return &ExitError{Code: ExitUnreachable, Err: fmt.Errorf("schema %s: %w", command, err)}
		}
		_, err = fmt.Fprintf(stdout, "keyspace %s has version %d\n", o.Keyspace, cassandra.SchemaVersion)
		return err
	}
}

func schemaOptions(command string, args []string, stderr io.Writer) (cassandra.Options, error) {
	flags := newFlags("schema "+command, "", stderr)
	file := flags.String("config", "", "configuration `FILE` with cassandra.hosts")
	if err := parseFlags(flags, args, 0); err != nil {
		return cassandra.Options{}, err
	}
	if *file == "" {
		return cassandra.Options{}, usageError("schema %s needs --config FILE", command)
	}
	c, err := configs.Load(*file)
	if err != nil {
		return cassandra.Options{}, &ExitError{Code: ExitUsage, Err: err}
	}
	if !c.Cassandra.Enabled() {
		return cassandra.Options{}, usageError("%s names no cassandra.hosts", *file)
	}
	return cassandraOptions(c, newLogger(c.Log, stderr)), nil
}

// cassandraOptions are the options of the store that a configuration asks for.
func cassandraOptions(c *configs.Config, log *slog.Logger) cassandra.Options {
	o := cassandra.Options{
		Hosts:             c.Cassandra.Hosts,
		Keyspace:          cassandra.KeyspaceOf(c.Cassandra.Keyspace, c.Namespace),
		Datacenter:        c.Cassandra.Datacenter,
		User:              c.Cassandra.User,
		PasswordFile:      c.Cassandra.PasswordFile,
		ReadConsistency:   c.Cassandra.ReadConsistency,
		WriteConsistency:  c.Cassandra.WriteConsistency,
		Timeout:           c.Cassandra.Timeout.Std(),
		ConnectTimeout:    c.Cassandra.Timeout.Std(),
		HedgeAfter:        c.Cassandra.HedgeAfter.Std(),
		ReplicationFactor: c.Cassandra.ReplicationFactor,
		DefaultKeep:       c.Retention.DefaultKeep.Std(),
		EventKeep:         c.Retention.Events.Std(),
		Logger:            log,
	}
	if t := c.Cassandra.TLS; t.Enabled {
		o.TLS = &cassandra.TLS{CAFile: t.CAFile, CertFile: t.CertFile, KeyFile: t.KeyFile, ServerName: t.ServerName}
	}
	return o
}
