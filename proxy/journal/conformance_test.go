package journal_test

import (
	"testing"
	"time"

	"saltern/proxy/journal"
	"saltern/tiers"
	"saltern/tiers/embedded"
	"saltern/tiers/tiertest"
)

// A store behind a journal is a store. With AckJournal it is one too, but knows nothing of what the
// store makes of a fact.
func TestConformance(t *testing.T) {
	for _, ack := range []journal.Ack{journal.AckStore, journal.AckAll} {
		t.Run(string(ack), func(t *testing.T) {
			tiertest.Run(t, func(t *testing.T) tiers.Tier {
				under, err := embedded.Open(embedded.Options{Dir: t.TempDir()})
				if err != nil {
					t.Fatal(err)
				}
				s, err := journal.Open(journal.Options{Dir: t.TempDir(), Under: under, Ack: ack, AckWait: time.Minute})
				if err != nil {
					t.Fatal(err)
				}
				return s
			}, tiertest.OutcomesAreHints())
		})
	}
}
