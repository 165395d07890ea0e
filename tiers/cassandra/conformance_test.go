package cassandra_test

import (
	"testing"

	"saltern/tiers"
	"saltern/tiers/cassandra"
	"saltern/tiers/tiertest"
)

func TestConformance(t *testing.T) {
	o := options(t)
	tiertest.Run(t, func(t *testing.T) tiers.Tier {
		s, err := cassandra.Open(o)
		if err != nil {
			t.Fatal(err)
		}
		awaitReady(t, s, 60e9)
		return s
	})
}
