package tiertest_test

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"saltern/job"
	"saltern/tiers"
	"saltern/tiers/embedded"
	"saltern/tiers/memory"
	"saltern/tiers/tiertest"
)

// The suite is tried on tiers that break the contract in one point each. A suite can fail only as a
// test, so each runs in a process of its own: this test binary, told by the environment what to break.
const broken = "SALTERN_BROKEN_TIER"

// faults are what is broken, and a test that has to find it.
var faults = []struct {
	name, found string
	wrap        func(t *testing.T) tiers.Tier
}{
	{"second load replaces the publish", "Merge/S01", func(t *testing.T) tiers.Tier {
		return cache{newMemory(t), hooks{facts: promoteLoads}}
	}},
	{"last return wins", "Merge/the_first_return_stays", func(t *testing.T) tiers.Tier {
		return cache{newMemory(t), hooks{facts: invertReturns}}
	}},
	{"list of minions is cut", "Merge/P18", func(t *testing.T) tiers.Tier {
		return cache{newMemory(t), hooks{head: func(h *job.Head) { h.Minions = h.Minions[:min(1, len(h.Minions))] }}}
	}},
	{"minion ids end at a NUL", "Identifiers/odd_minion_ids", func(t *testing.T) tiers.Tier {
		return cache{newMemory(t), hooks{facts: cutMinions}}
	}},
	{"payloads lose what is no UTF-8", "Payloads/bytes_are_opaque", func(t *testing.T) tiers.Tier {
		return cache{newMemory(t), hooks{facts: validPayloads}}
	}},
	{"page is not sorted", "Returns/queries", func(t *testing.T) tiers.Tier {
		return cache{newMemory(t), hooks{page: func(p *tiers.ReturnPage) { slices.Reverse(p.Returns) }}}
	}},
	{"last page is lost", "Returns/pages", func(t *testing.T) tiers.Tier {
		return cache{newMemory(t), hooks{page: func(p *tiers.ReturnPage) { p.Next = "" }}}
	}},
	{"unknown jobs exist", "Merge/unknown_job", func(t *testing.T) tiers.Tier {
		return cache{newMemory(t), hooks{exists: true}}
	}},
	{"store lists oldest first", "List/filters", func(t *testing.T) tiers.Tier {
		return store{newStore(t), func(p *tiers.ListPage) { slices.Reverse(p.Jobs) }}
	}},
	{"store forgets how many it hid", "List/filters/hidden", func(t *testing.T) tiers.Tier {
		return store{newStore(t), func(p *tiers.ListPage) { p.Hidden = 0 }}
	}},
}

func TestSuiteFindsFaults(t *testing.T) {
	if name := os.Getenv(broken); name != "" {
		for _, f := range faults {
			if f.name == name {
				tiertest.Run(t, f.wrap)
			}
		}
		return
	}
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			top, _, _ := strings.Cut(f.found, "/")
			cmd := exec.Command(os.Args[0], "-test.run", "TestSuiteFindsFaults/^"+top+"$", "-test.v",
				"-rapid.checks=20", "-rapid.nofailfile", "-test.timeout=60s")
			cmd.Env = append(os.Environ(), broken+"="+f.name)
			out, err := cmd.CombinedOutput()
			if want := "--- FAIL: TestSuiteFindsFaults/" + f.found; err == nil || !strings.Contains(string(out), want) {
				t.Errorf("the suite ended with %v, and without a line %q\n%s", err, want, out)
			}
		})
	}
}

func newMemory(t *testing.T) *memory.Cache {
	t.Helper()
	c, err := memory.New(memory.Options{MaxBytes: 256 << 20})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func newStore(t *testing.T) *embedded.Store {
	t.Helper()
	s, err := embedded.Open(embedded.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// hooks change what goes into a cache and what comes out of it.
type hooks struct {
	facts  func([]job.Fact) []job.Fact
	head   func(*job.Head)
	page   func(*tiers.ReturnPage)
	exists bool // every job does
}

type cache struct {
	*memory.Cache
	hooks
}

func (c cache) Merge(ctx context.Context, facts []job.Fact) ([]job.Outcome, error) {
	if c.facts != nil {
		facts = c.facts(slices.Clone(facts))
	}
	return c.Cache.Merge(ctx, facts)
}

func (c cache) Head(ctx context.Context, jid job.JID) (job.Head, error) {
	h, err := c.Cache.Head(ctx, jid)
	if c.exists && err != nil {
		return job.Head{JID: jid}, nil
	}
	if c.head != nil {
		c.head(&h)
	}
	return h, err
}

func (c cache) Returns(ctx context.Context, jid job.JID, q tiers.ReturnQuery) (tiers.ReturnPage, error) {
	page, err := c.Cache.Returns(ctx, jid, q)
	if c.page != nil {
		c.page(&page)
	}
	return page, err
}

// store is a store that lists wrongly.
type store struct {
	*embedded.Store
	change func(*tiers.ListPage)
}

func (s store) List(ctx context.Context, f tiers.Filter) (tiers.ListPage, error) {
	page, err := s.Store.List(ctx, f)
	s.change(&page)
	return page, err
}

// change applies f to the facts of one kind.
func change[T job.Fact](facts []job.Fact, f func(*T)) []job.Fact {
	for i := range facts {
		if v, ok := facts[i].(T); ok {
			f(&v)
			facts[i] = v
		}
	}
	return facts
}

func promoteLoads(facts []job.Fact) []job.Fact {
	return change(facts, func(l *job.Load) { l.Rank = job.RankPublish })
}

func invertReturns(facts []job.Fact) []job.Fact {
	return change(facts, func(r *job.Return) { r.Version = job.MaxVersion - r.Version })
}

func cutMinions(facts []job.Fact) []job.Fact {
	return change(facts, func(r *job.Return) {
		id, _, _ := strings.Cut(string(r.Minion), "\x00")
		r.Minion = job.Minion(id)
	})
}

func validPayloads(facts []job.Fact) []job.Fact {
	return change(facts, func(r *job.Return) { r.Ret = []byte(strings.ToValidUTF8(string(r.Ret), "?")) })
}
