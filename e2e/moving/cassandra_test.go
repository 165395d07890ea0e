package moving_test

import (
	"testing"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
)

// saltTables makes the tables as the documentation of Salt's cassandra_cql returner says.
func saltTables(t *testing.T, address string) {
	t.Helper()
	c := gocql.NewCluster(address)
	c.Timeout = time.Minute
	session, err := c.CreateSession()
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	for _, statement := range []string{
		`CREATE KEYSPACE salt WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}`,
		`CREATE TABLE salt.salt_returns (jid text, minion_id text, fun text, alter_time timestamp, full_ret text, return text,
			success boolean, PRIMARY KEY (jid, minion_id, fun)) WITH CLUSTERING ORDER BY (minion_id ASC, fun ASC)`,
		`CREATE TABLE salt.jids (jid text PRIMARY KEY, load text)`,
		`CREATE TABLE salt.minions (minion_id text PRIMARY KEY, last_fun text)`,
		`CREATE TABLE salt.salt_events (id timeuuid, tag text, alter_time timestamp, data text, master_id text,
			PRIMARY KEY (id, tag)) WITH CLUSTERING ORDER BY (tag ASC)`,
	} {
		if err := session.Query(statement).Exec(); err != nil {
			t.Fatal(err)
		}
	}
}
