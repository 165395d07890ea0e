package memory_test

import (
	"testing"

	"saltern/tiers"
	"saltern/tiers/memory"
	"saltern/tiers/tiertest"
)

func open(t testing.TB, o memory.Options) *memory.Cache {
	t.Helper()
	c := create(t, o)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func create(t testing.TB, o memory.Options) *memory.Cache {
	t.Helper()
	c, err := memory.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestConformance(t *testing.T) {
	tiertest.Run(t, func(t *testing.T) tiers.Tier {
		return create(t, memory.Options{MaxBytes: 256 << 20})
	})
}
