package embedded_test

import (
	"testing"

	"saltern/tiers"
	"saltern/tiers/embedded"
	"saltern/tiers/tiertest"
)

func TestConformance(t *testing.T) {
	dirs := make(map[tiers.Tier]string)
	start := func(t *testing.T, dir string) tiers.Tier {
		s, err := embedded.Open(embedded.Options{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		dirs[s] = dir
		return s
	}
	tiertest.Run(t, func(t *testing.T) tiers.Tier { return start(t, t.TempDir()) },
		tiertest.Reopen(func(t *testing.T, old tiers.Tier) tiers.Tier {
			if err := old.Close(); err != nil {
				t.Fatal(err)
			}
			return start(t, dirs[old])
		}))
}
