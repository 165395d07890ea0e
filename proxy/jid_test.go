package proxy_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"saltern/job"
	"saltern/proxy"
	"saltern/tiers"
)

// TestPrepJIDIsUnique: 64 callers on a clock that stands still.
func TestPrepJIDIsUnique(t *testing.T) {
	const callers, each = 64, 100
	at := now()
	b := open(t, func(o *proxy.Options, _ *bed) { o.Now = func() time.Time { return at } })
	given := make([][]job.JID, callers)
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for range each {
				given[i] = append(given[i], b.PrepJID(ctx))
			}
		})
	}
	wg.Wait()
	seen := make(map[job.JID]bool)
	for _, jids := range given {
		for _, jid := range jids {
			if _, ok := jid.Time(); !ok || len(jid) != 20 || seen[jid] {
				t.Fatalf("jid %q: in Salt's form %v, given before %v", jid, ok, seen[jid])
			}
			seen[jid] = true
		}
	}
}

// TestPrepJIDAvoidsJobs: after a restart the clock may be behind jobs that there are.
func TestPrepJIDAvoidsJobs(t *testing.T) {
	at := now().Truncate(time.Microsecond)
	b := open(t, func(o *proxy.Options, _ *bed) { o.Now = func() time.Time { return at } })
	for i := range 5 {
		l := load("*")
		l.JID = job.NewJID(at.Add(time.Duration(i) * time.Microsecond))
		b.write(l)
	}
	if got, want := b.PrepJID(ctx), job.NewJID(at.Add(5*time.Microsecond)); got != want {
		t.Errorf("jid %q; want %q, the first that no job has", got, want)
	}
}

// TestPrepJIDWithoutStore: jids are given out also when the store cannot be asked.
func TestPrepJIDWithoutStore(t *testing.T) {
	b := open(t)
	b.store.On(broken)
	if one, two := b.PrepJID(ctx), b.PrepJID(ctx); len(one) != 20 || one >= two {
		t.Errorf("jids %q and %q", one, two)
	}
}

// unsure does not say which fact was the first of its job, as a journal before a store that is away.
type unsure struct{ tiers.Store }

func (u unsure) Merge(ctx context.Context, facts []job.Fact) ([]job.Outcome, error) {
	_, err := u.Store.Merge(ctx, facts)
	return make([]job.Outcome, len(facts)), err
}

// A job of such a jid is in the cache once it is published: the store is not asked for it.
func TestPublishOfAJIDMintedWithoutStoreIsCached(t *testing.T) {
	b := open(t, func(o *proxy.Options, b *bed) { o.Store = unsure{b.store} })
	b.store.On(broken)
	l := load("*")
	l.JID = b.PrepJID(ctx)
	b.store.On(nil)
	b.write(l)
	b.store.On(broken)
	if h, err := b.Head(ctx, l.JID); err != nil || h.Load == nil {
		t.Errorf("head: %+v, %v", h, err)
	}
}
