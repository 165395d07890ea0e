package proxy_test

import (
	"sync"
	"testing"
	"time"

	"saltern/job"
	"saltern/proxy"
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
