package redis_test

import (
	"testing"

	"saltern/tiers"
	"saltern/tiers/redis"
	"saltern/tiers/tiertest"
)

// The suite fills jobs right after facts of them, as no reader of a store that others write to may: hence no
// guard. TestGuard has the guard.
func opener(o redis.Options) func(t *testing.T) tiers.Tier {
	return func(t *testing.T) tiers.Tier {
		tier, err := redis.New(defaults(o))
		if err != nil {
			t.Fatal(err)
		}
		return tier // closed by the suite
	}
}

func TestConformance(t *testing.T) {
	tiertest.Run(t, opener(redis.Options{}))
}

func TestConformanceCluster(t *testing.T) {
	cluster := startCluster(t)
	tiertest.Run(t, opener(redis.Options{Addrs: cluster.Addresses(), Mode: redis.Cluster}))
}
