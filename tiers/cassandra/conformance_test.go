package cassandra_test

import (
	"sync"
	"testing"
	"time"

	"github.com/apache/cassandra-gocql-driver/v2"

	"saltern/tiers"
	"saltern/tiers/cassandra"
	"saltern/tiers/tiertest"
)

func TestConformance(t *testing.T) {
	o := options(t)
	start := func(t *testing.T) tiers.Tier {
		s, err := cassandra.Open(o)
		if err != nil {
			t.Fatal(err)
		}
		awaitReady(t, s, time.Minute)
		return s
	}
	empty := emptier(t, o, start)
	tiertest.Run(t, func(t *testing.T) tiers.Tier {
		empty(t)
		return start(t)
	}, tiertest.OutcomesAreHints(), tiertest.ExpiresByItself(), tiertest.Reopen(func(t *testing.T, old tiers.Tier) tiers.Tier {
		if err := old.Close(); err != nil {
			t.Fatal(err)
		}
		return start(t)
	}))
}

// emptier empties the tables, so that each test has a store of its own.
func emptier(t *testing.T, o cassandra.Options, start func(*testing.T) tiers.Tier) func(t *testing.T) {
	if err := start(t).Close(); err != nil { // makes the schema
		t.Fatal(err)
	}
	session := bare(t, o)
	return func(t *testing.T) {
		t.Helper()
		var wg sync.WaitGroup
		for _, table := range []string{
			"heads", "returns", "jobs_by_day", "jobs_by_minion", "days", "last_functions", "events", "event_slots",
		} {
			wg.Go(func() {
				if err := session.Query("TRUNCATE " + table).Exec(); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
}

// bare is a session that knows nothing of the store.
func bare(t testing.TB, o cassandra.Options) *gocql.Session {
	t.Helper()
	c := gocql.NewCluster(o.Hosts...)
	c.Keyspace, c.Timeout, c.ConnectTimeout = o.Keyspace, 20*time.Second, 20*time.Second
	c.Consistency = gocql.LocalQuorum
	if o.User != "" {
		c.Authenticator = gocql.PasswordAuthenticator{Username: "cassandra", Password: "cassandra"}
	}
	session, err := c.CreateSession()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(session.Close)
	return session
}
