package cassandra_test

import (
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/apache/cassandra-gocql-driver/v2"

	"saltern/tiers"
	"saltern/tiers/cassandra"
	"saltern/tiers/tiertest"
)

func TestConformance(t *testing.T) {
	o := ownOptions(t)
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

// lists are the tests that ask for lists. Emptying a table takes a tenth of a second, so others keep theirs.
var lists = regexp.MustCompile("/(Store|List|Events|LastFunctions|Expire|Reopen)/")

// emptier empties tables, so that each test has a store of its own.
func emptier(t *testing.T, o cassandra.Options, start func(*testing.T) tiers.Tier) func(t *testing.T) {
	if err := start(t).Close(); err != nil { // makes the schema
		t.Fatal(err)
	}
	session := bare(t, o)
	return func(t *testing.T) {
		t.Helper()
		tables := []string{"heads", "returns"}
		if lists.MatchString(t.Name()) {
			tables = append(tables, "jobs_by_day", "jobs_by_minion", "days", "last_functions", "events", "event_slots")
		}
		var wg sync.WaitGroup
		for _, table := range tables {
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
