package move

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"

	"saltern/job"
)

// CassandraOptions say where the tables of cassandra_cql are.
type CassandraOptions struct {
	Hosts          []string
	Port           int
	User, Password string
	Keyspace       string
	// TLS where not nil.
	TLS *gocql.SslOptions
}

// Cassandra reads the tables of Salt's cassandra_cql returner (salt/returners/cassandra_cql_return.py).
type Cassandra struct{ session *gocql.Session }

// OpenCassandra connects.
func OpenCassandra(o CassandraOptions) (*Cassandra, error) {
	c := gocql.NewCluster(o.Hosts...)
	c.Port, c.Keyspace, c.SslOpts = cmp.Or(o.Port, 9042), o.Keyspace, o.TLS
	c.Timeout, c.ConnectTimeout = 30*time.Second, 10*time.Second
	c.Logger = gocql.NewLogger(gocql.LogLevelNone)
	if o.User != "" {
		c.Authenticator = gocql.PasswordAuthenticator{Username: o.User, Password: o.Password}
	}
	s, err := c.CreateSession()
	if err != nil {
		return nil, err
	}
	return &Cassandra{session: s}, nil
}

// Close closes the connections.
func (c *Cassandra) Close() error { c.session.Close(); return nil }

// tables are read one after the other. A cursor is the name of one and the driver's state of its pages.
var tables = []struct {
	name, query string
	read        func(*Cassandra, context.Context, map[string]any, Options, *part) error
}{
	{"jids", "SELECT jid, load FROM jids", (*Cassandra).job},
	{"salt_returns", "SELECT DISTINCT jid FROM salt_returns", (*Cassandra).orphan},
	{"salt_events", "SELECT id, tag, data, master_id FROM salt_events", (*Cassandra).event},
}

const rowsPerPage = 200

// Each implements Source: the jobs with their returns, returns of jobs without a load, and events.
func (c *Cassandra) Each(ctx context.Context, o Options, take func(Item) error) error {
	after, page, _ := strings.Cut(o.After, ":")
	state, err := base64.StdEncoding.DecodeString(page)
	if err != nil {
		return fmt.Errorf("%q is no place in these tables", o.After)
	}
	for _, t := range tables {
		if after != "" && after != t.name {
			continue
		}
		after = ""
		for {
			rows, next, err := c.page(ctx, t.query, state)
			if err != nil {
				return fmt.Errorf("%s: %w", t.name, err)
			}
			p := &part{take: take}
			for _, row := range rows {
				if err := t.read(c, ctx, row, o, p); err != nil {
					return err
				}
			}
			if state = next; len(state) == 0 {
				if err := p.flush(""); err != nil {
					return err
				}
				break
			}
			if err := p.flush(t.name + ":" + base64.StdEncoding.EncodeToString(state)); err != nil {
				return err
			}
		}
	}
	return nil
}

// page reads one page, and gives what the next one begins with; empty after the last.
func (c *Cassandra) page(ctx context.Context, query string, state []byte, values ...any) ([]map[string]any, []byte, error) {
	iter := c.session.Query(query, values...).PageSize(rowsPerPage).PageState(state).IterContext(ctx)
	rows, err := iter.SliceMap()
	next := iter.PageState()
	return rows, next, errors.Join(err, iter.Close())
}

func (c *Cassandra) job(ctx context.Context, row map[string]any, o Options, p *part) error {
	jid, load := asText(row["jid"]), asText(row["load"])
	if !validID(jid, job.MaxJIDBytes) {
		o.Bad("jids "+strconv.Quote(jid), errors.New("no jid"))
		return nil
	}
	fun, err := addLoad(p, "jids "+jid, job.JID(jid), undoubled(load), o)
	if err != nil {
		return err
	}
	return c.returns(ctx, jid, fun, o, p)
}

func (c *Cassandra) orphan(ctx context.Context, row map[string]any, o Options, p *part) error {
	jid := asText(row["jid"])
	if !validID(jid, job.MaxJIDBytes) {
		o.Bad("salt_returns "+strconv.Quote(jid), errors.New("no jid"))
		return nil
	}
	rows, _, err := c.page(ctx, "SELECT jid FROM jids WHERE jid = ?", nil, jid)
	if err != nil || len(rows) > 0 {
		return err
	}
	return c.returns(ctx, jid, "", o, p)
}

// returns reads those of a job. The table has one for each minion and function; the returner's get_jid gives
// the last one, in the order of the functions' names.
func (c *Cassandra) returns(ctx context.Context, jid, fun string, o Options, p *part) error {
	const query = "SELECT minion_id, full_ret, alter_time FROM salt_returns WHERE jid = ?"
	var last map[string]any // whose successor is not known yet
	add := func() error {
		if last == nil {
			return nil
		}
		at, _ := last["alter_time"].(time.Time)
		if at.IsZero() {
			at = timeOf(job.JID(jid), time.Now())
		}
		minion := asText(last["minion_id"])
		return addReturn(p, "salt_returns "+jid+" "+strconv.Quote(minion), job.JID(jid), minion,
			undoubled(asText(last["full_ret"])), fun, at, o)
	}
	var state []byte
	for {
		rows, next, err := c.page(ctx, query, state, jid)
		if err != nil {
			return fmt.Errorf("salt_returns: %w", err)
		}
		for _, row := range rows {
			if asText(row["full_ret"]) == "" {
				continue // get_jid passes it over too
			}
			if last != nil && asText(last["minion_id"]) != asText(row["minion_id"]) {
				if err := add(); err != nil {
					return err
				}
			}
			last = row
		}
		if state = next; len(state) == 0 {
			return add()
		}
	}
}

// event reads an event, whose id is made of the time and the rest of that of its row.
func (c *Cassandra) event(_ context.Context, row map[string]any, o Options, p *part) error {
	id, _ := row["id"].(gocql.UUID)
	tag := asText(row["tag"])
	data, surrogates, err := fromJSON(undoubled(asText(row["data"])))
	if err != nil {
		o.Bad("salt_events "+id.String(), err)
		return nil
	}
	e := job.Event{Version: Version(id.Time()), Master: asText(row["master_id"]), Tag: tag, Data: data, Surrogates: surrogates}
	binary.BigEndian.PutUint64(e.ID[:8], uint64(max(0, id.Time().UnixMicro())))
	copy(e.ID[8:], id[8:])
	return p.add(e)
}

// asText is a column of type text; null is empty.
func asText(column any) string {
	switch v := column.(type) {
	case string:
		return v
	case *string:
		if v != nil {
			return *v
		}
	}
	return ""
}

// undoubled undoes what cassandra_cql does to each apostrophe: it doubles it, as for a literal of CQL, and then
// binds the text as a parameter, which keeps both. Text in which some stand alone was not written so.
func undoubled(text string) string {
	if strings.Contains(strings.ReplaceAll(text, "''", ""), "'") {
		return text
	}
	return strings.ReplaceAll(text, "''", "'")
}
