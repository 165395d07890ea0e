package cassandra_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"saltern/job"
	"saltern/tiers"
	"saltern/tiers/cassandra"
)

// clock gives versions as a daemon does.
var clock = job.NewClock(1, time.Now)

func publish(jid job.JID, keep job.Keep) job.Load {
	return job.Load{
		JID: jid, Version: clock.Next(), Rank: job.RankPublish, Fun: "test.ping", Target: "*", TargetType: "glob",
		User: "root", Master: "m1", Keep: keep, Payload: []byte("\x81\xa3fun\xa9test.ping"),
	}
}

func minionsOf(jid job.JID, ids ...job.Minion) job.Minions {
	return job.Minions{JID: jid, Version: clock.Next(), IDs: ids, Keep: 86400}
}

func returnOf(jid job.JID, minion job.Minion, payload []byte) job.Return {
	zero, yes := int64(0), true
	return job.Return{
		JID: jid, Minion: minion, Version: clock.Next(), Fun: "test.ping", Master: "m1", Keep: 86400,
		RetCode: &zero, Success: &yes, Ret: payload, Rest: []byte{0x80}, Times: []byte{0x80},
	}
}

func newJID() job.JID {
	return job.NewJID(clock.Next().Time().Add(time.Duration(rand.IntN(1000)) * time.Microsecond))
}

// noise does not compress.
func noise(n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(n)})
	_, _ = r.Read(b) // never fails
	return b
}

func merge(t testing.TB, s *cassandra.Store, facts ...job.Fact) []job.Outcome {
	t.Helper()
	outcomes, err := s.Merge(t.Context(), facts)
	if err != nil {
		t.Fatalf("Merge of %d facts: %v", len(facts), err)
	}
	return outcomes
}

// allReturns reads all pages.
func allReturns(t testing.TB, s *cassandra.Store, jid job.JID, q tiers.ReturnQuery) (all []job.Return, pages int) {
	t.Helper()
	for {
		page, err := s.Returns(t.Context(), jid, q)
		if err != nil {
			t.Fatalf("Returns(%q, after %q): %v", jid, q.After, err)
		}
		all, pages = append(all, page.Returns...), pages+1
		if page.Next == "" {
			return all, pages
		}
		q.After = page.Next
	}
}

func minion(i int) job.Minion { return job.Minion(fmt.Sprintf("web%05d.example.com", i)) }
