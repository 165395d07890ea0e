package redis_test

import (
	"context"
	"testing"
	"time"

	"saltern/testbed"
	"saltern/tiers"
	"saltern/tiers/redis"
	"saltern/tiers/tiertest"
)

// The suite fills jobs right after facts of them, as no reader of a store that others write to may: hence no
// guard. TestGuard has the guard.
func opener(o redis.Options) func(t *testing.T) tiers.Tier {
	return func(t *testing.T) tiers.Tier {
		o := o
		o.Guard = -1
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
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	bed, cluster, err := testbed.StartRedisCluster(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := bed.Close(); err != nil {
			t.Error(err)
		}
	})
	tiertest.Run(t, opener(redis.Options{Addrs: cluster.Addresses(), Mode: redis.Cluster}))
}
