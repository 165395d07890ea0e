package cassandra

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/apache/cassandra-gocql-driver/v2"

	"saltern/tiers"
)

// SchemaVersion is the version of the tables that this program writes and reads. A program works with a
// newer schema too: migrations only add tables and columns, so that two versions can run beside each other.
const SchemaVersion = 1

// migrations[i] makes version i+1 of the one before. Every statement can be run again. %[1]s stands for the time
// window of jobs, %[2]s for that of events.
//
// Identifiers are blobs, as they may be no UTF-8. A row that several facts may write, with times to live of their own,
// has the class of its time in its key, so that a short one never ends a long one. Nothing is deleted, so that a tombstone comes only of a row's
// end; gc_grace_seconds is then what a hint may be old.
var migrations = [][]string{{
	`CREATE TABLE IF NOT EXISTS heads (jid blob, kind tinyint, name blob, data blob,
		PRIMARY KEY (jid, kind, name)) WITH %[1]s`,
	`CREATE TABLE IF NOT EXISTS returns (jid blob, bucket int, minion blob, version bigint, digest bigint, head blob, body blob,
		PRIMARY KEY ((jid, bucket), minion, version, digest)) WITH %[1]s`,
	`CREATE TABLE IF NOT EXISTS chunks (owner blob, name blob, version bigint, n int, data blob,
		PRIMARY KEY ((owner, name, version), n)) WITH %[1]s AND compression = {'enabled': 'false'}`,
	`CREATE TABLE IF NOT EXISTS jobs_by_day (day date, shard smallint, at bigint, jid blob, class smallint, changed bigint, summary blob,
		PRIMARY KEY ((day, shard), at, jid, class)) WITH CLUSTERING ORDER BY (at DESC, jid DESC, class DESC) AND %[1]s`,
	`CREATE TABLE IF NOT EXISTS jobs_by_minion (day date, shard smallint, minion blob, at bigint, jid blob, class smallint,
		PRIMARY KEY ((day, shard), minion, at, jid, class))
		WITH CLUSTERING ORDER BY (minion ASC, at DESC, jid DESC, class DESC) AND %[1]s`,
	`CREATE TABLE IF NOT EXISTS last_functions (shard smallint, minion blob, class smallint, data blob, seen bigint,
		PRIMARY KEY (shard, minion, class))`,
	`CREATE TABLE IF NOT EXISTS days (kind text, day date, class smallint,
		PRIMARY KEY (kind, day, class)) WITH CLUSTERING ORDER BY (day DESC, class ASC)`,
	`CREATE TABLE IF NOT EXISTS events (master blob, slot bigint, id blob, version bigint, data blob,
		PRIMARY KEY ((master, slot), id, version)) WITH CLUSTERING ORDER BY (id DESC, version DESC) AND %[2]s`,
	`CREATE TABLE IF NOT EXISTS event_slots (day date, slot bigint, master blob,
		PRIMARY KEY (day, slot, master)) WITH CLUSTERING ORDER BY (slot DESC, master ASC) AND %[2]s`,
	`CREATE TABLE IF NOT EXISTS registers (master blob PRIMARY KEY, data blob)`,
}}

const versionTable = `CREATE TABLE IF NOT EXISTS schema_version (id tinyint, version int, applied timestamp,
		PRIMARY KEY (id, version)) WITH CLUSTERING ORDER BY (version DESC)`

// ErrSchema is returned where the tables are missing or older than this program needs.
var ErrSchema = errors.New("the schema is not there")

// Schema is the CQL that ApplySchema runs against an empty cluster.
func Schema(o Options) ([]string, error) {
	if err := o.setDefaults(); err != nil {
		return nil, err
	}
	cql := []string{o.createKeyspace(), "USE " + o.Keyspace, versionTable}
	for i := range migrations {
		cql = append(cql, o.migration(i)...)
		cql = append(cql, fmt.Sprintf("INSERT INTO schema_version (id, version, applied) VALUES (0, %d, toTimestamp(now()))", i+1))
	}
	return cql, nil
}

func (o *Options) createKeyspace() string {
	where := "replication_factor"
	if o.Datacenter != "" {
		where = o.Datacenter
	}
	return fmt.Sprintf("CREATE KEYSPACE IF NOT EXISTS %s WITH replication = {'class': 'NetworkTopologyStrategy', '%s': %d}",
		o.Keyspace, strings.ReplaceAll(where, "'", "''"), o.ReplicationFactor)
}

func (o *Options) migration(i int) []string {
	jobs, events := window(o.DefaultKeep), window(o.EventKeep)
	cql := make([]string, len(migrations[i]))
	for k, text := range migrations[i] {
		if strings.Contains(text, "%[") {
			// Both are named, as fmt complains of one that is not used.
			text = strings.NewReplacer("%[1]s", jobs, "%[2]s", events).Replace(text)
		}
		cql[k] = text
	}
	return cql
}

// window is compaction by time: about 30 windows for what is kept, so that a table has some 30 SSTables and
// drops a whole one at a time.
func window(keep time.Duration) string {
	hours := max(1, int(keep/30/time.Hour))
	return fmt.Sprintf("compaction = {'class': 'TimeWindowCompactionStrategy', 'compaction_window_unit': 'HOURS', "+
		"'compaction_window_size': %d} AND gc_grace_seconds = 10800", hours)
}

// CheckSchema says whether the tables are there in a version that this program can work with. If not, the error is
// an ErrSchema that says what to do.
func CheckSchema(ctx context.Context, o Options) error {
	if err := o.setDefaults(); err != nil {
		return err
	}
	session, err := o.checkedSession(ctx)
	if err != nil {
		return err
	}
	closeSession(session)
	return nil
}

func (o *Options) checkSchema(ctx context.Context, session *gocql.Session) error {
	version, err := o.schemaVersion(ctx, session)
	if err != nil || version >= SchemaVersion {
		return err
	}
	if version == 0 {
		return fmt.Errorf("%w: keyspace %s has no tables of saltern: run `saltern schema apply`", ErrSchema, o.Keyspace)
	}
	return fmt.Errorf("%w: keyspace %s has version %d and %d is needed: run `saltern schema apply`",
		ErrSchema, o.Keyspace, version, SchemaVersion)
}

// orNoKeyspace explains why there is no session, where it is because there is no keyspace: the driver gives the same
// error as for nodes that cannot be reached.
func (o *Options) orNoKeyspace(ctx context.Context, why error) error {
	session, err := o.newSession("")
	if err != nil {
		return why
	}
	defer closeSession(session)
	var keyspaces int
	err = session.Query("SELECT count(*) FROM system_schema.keyspaces WHERE keyspace_name = ?", o.Keyspace).
		Consistency(gocql.One).ScanContext(ctx, &keyspaces)
	if err != nil || keyspaces > 0 {
		return why
	}
	return fmt.Errorf("%w: there is no keyspace %s: run `saltern schema apply`", ErrSchema, o.Keyspace)
}

// schemaVersion is 0 where there is no keyspace or no table of ours.
func (o *Options) schemaVersion(ctx context.Context, session *gocql.Session) (int, error) {
	var tables int
	err := session.Query("SELECT count(*) FROM system_schema.tables WHERE keyspace_name = ? AND table_name = 'schema_version'",
		o.Keyspace).Consistency(gocql.One).ScanContext(ctx, &tables)
	if err != nil {
		return 0, fmt.Errorf("reading the schema: %w", err)
	}
	if tables == 0 {
		return 0, nil
	}
	var version int
	err = session.Query("SELECT version FROM "+o.Keyspace+".schema_version WHERE id = 0 LIMIT 1").
		Consistency(gocql.ParseConsistency(o.ReadConsistency)).ScanContext(ctx, &version)
	if errors.Is(err, gocql.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("reading the version of the schema: %w", err)
	}
	return version, nil
}

// alterTimeout is for a change of the schema, which can take far longer than any request of a job: seconds on a node
// that has just started.
const alterTimeout = 30 * time.Second

// ApplySchema makes the keyspace and the tables, or migrates them. Running it again changes nothing. It is to be run by
// one at a time: Cassandra does not settle two changes of a schema at once well.
func ApplySchema(ctx context.Context, o Options) error {
	if err := o.setDefaults(); err != nil {
		return err
	}
	o.Timeout = max(o.Timeout, alterTimeout)
	session, err := o.newSession("")
	if err != nil {
		return err
	}
	defer closeSession(session)
	version, err := o.schemaVersion(ctx, session)
	if err != nil || version >= SchemaVersion {
		return err
	}
	if version == 0 {
		if err := o.alter(ctx, session, o.createKeyspace()); err != nil {
			return err
		}
	}
	// Statements need the keyspace's name, as a driver's session cannot USE one.
	inside, err := o.newSession(o.Keyspace)
	if err != nil {
		return err
	}
	defer closeSession(inside)
	if err := o.alter(ctx, inside, versionTable); err != nil {
		return err
	}
	for i := version; i < SchemaVersion; i++ {
		for _, cql := range o.migration(i) {
			if err := o.alter(ctx, inside, cql); err != nil {
				return fmt.Errorf("version %d: %w", i+1, err)
			}
		}
		if err := inside.Query("INSERT INTO schema_version (id, version, applied) VALUES (0, ?, ?)", i+1, o.Now()).
			Consistency(gocql.ParseConsistency(o.WriteConsistency)).ExecContext(ctx); err != nil {
			return fmt.Errorf("noting version %d of the schema: %w", i+1, err)
		}
	}
	return nil
}

// alter runs one statement of the schema and waits until all nodes have it.
func (o *Options) alter(ctx context.Context, session *gocql.Session, cql string) error {
	first, _, _ := strings.Cut(cql, "(")
	if err := session.Query(cql).ExecContext(ctx); err != nil {
		return fmt.Errorf("%s: %w", strings.TrimSpace(first), err)
	}
	if err := session.AwaitSchemaAgreement(ctx); err != nil {
		return fmt.Errorf("%s: nodes do not agree on the schema: %w: %w", strings.TrimSpace(first), tiers.ErrUnavailable, err)
	}
	return nil
}
