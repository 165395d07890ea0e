package proxy_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"saltern/job"
	"saltern/proxy"
	"saltern/proxy/proxytest"
	"saltern/tiers"
)

// bed is a proxy over a cache and a store of maps, with a shared tier between them where a test asks
// for one.
type bed struct {
	*proxy.Proxy
	t      testing.TB
	store  *proxytest.Store
	cache  *proxytest.Cache
	shared *proxytest.Cache
}

// now is the time of day of the tests. Bubbles of synctest begin in the year 2000, which is before
// the first version.
func now() time.Time { return time.Now().Add(27 * 366 * 24 * time.Hour) }

// open opens a proxy, which the end of the test closes.
func open(t testing.TB, change ...func(*proxy.Options, *bed)) *bed {
	b := &bed{t: t, store: &proxytest.Store{}, cache: &proxytest.Cache{}}
	o := proxy.Options{
		Store: b.store, Clock: job.NewClock(1, now), Now: now, Master: "master",
		Logger: slog.New(slog.DiscardHandler),
	}
	for _, c := range change {
		c(&o, b)
	}
	if o.Cache == nil {
		o.Cache = b.cache
	}
	b.Proxy = proxy.Open(o)
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return b
}

// withShared puts a shared tier between the cache and the store.
func withShared(o *proxy.Options, b *bed) {
	b.shared = &proxytest.Cache{Called: "shared", Leases: true}
	o.Shared = []tiers.Tier{b.shared}
}

// withGuards puts the shared tier, if there is one, and the store behind their guards.
func withGuards(o *proxy.Options, _ *bed) {
	for i, t := range o.Shared {
		o.Shared[i] = proxy.Guard(t, proxy.GuardOptions{})
	}
	o.Store = proxy.GuardStore(o.Store, proxy.GuardOptions{})
}

// forgetful makes the cache hold nothing: what a read gives then comes through the tiers under it.
func forgetful(_ *proxy.Options, b *bed) { b.cache.Forgetful = true }

const jid = job.JID("20270105120000000000")

var ctx = context.Background()

func load(target string) job.Load {
	return job.Load{JID: jid, Rank: job.RankPublish, Target: target, Keep: job.KeepForever, Payload: []byte{0x80}}
}

func ret(minion job.Minion, value byte) job.Return {
	return job.Return{JID: jid, Minion: minion, Ret: []byte{value}, Rest: []byte{0x80}, Times: []byte{0x80}}
}

func (b *bed) write(facts ...job.Fact) []job.Outcome {
	b.t.Helper()
	outcomes, err := b.Write(ctx, facts...)
	if err != nil {
		b.t.Fatalf("Write: %v", err)
	}
	return outcomes
}

// target gives the target of the test's job as it is read, or the error.
func (b *bed) target() string {
	h, err := b.Head(ctx, jid)
	switch {
	case err != nil:
		return err.Error()
	case h.Load == nil:
		return "no load"
	default:
		return h.Load.Target
	}
}

// returned gives the returns of the test's job as they are read, such as "a=1 b=2", or the error.
func (b *bed) returned() string {
	page, err := b.Returns(ctx, jid, tiers.ReturnQuery{})
	if err != nil {
		return err.Error()
	}
	return pageString(page)
}

func pageString(page tiers.ReturnPage) string {
	s := ""
	for i, r := range page.Returns {
		if i > 0 {
			s += " "
		}
		s += fmt.Sprintf("%s=%d", r.Minion, r.Ret[0])
	}
	if page.Next != "" {
		s += " ..."
	}
	return s
}

func (b *bed) wantTarget(when, want string) {
	b.t.Helper()
	if got := b.target(); got != want {
		b.t.Errorf("%s: target %q; want %q", when, got, want)
	}
}

func (b *bed) wantReturned(when, want string) {
	b.t.Helper()
	if got := b.returned(); got != want {
		b.t.Errorf("%s: returns %q; want %q", when, got, want)
	}
}

// wantErr checks that an error is one, and is not another.
func wantErr(t testing.TB, when string, err, is, isNot error) {
	t.Helper()
	if !errors.Is(err, is) || isNot != nil && errors.Is(err, isNot) {
		t.Errorf("%s: error %v; want %v", when, err, is)
	}
}

// answers gives how often a tier gave an answer.
func (b *bed) answers(tier string, a proxy.Answer) uint64 {
	var n uint64
	b.Stats.Reads(func(name string, answer proxy.Answer, count uint64) {
		if name == tier && answer == a {
			n = count
		}
	})
	return n
}

// pause is a hook that stops the first call of its kind, until it is let go.
type pause struct {
	at      proxytest.Call
	reached chan struct{} // closed when the call has come
	release chan struct{}
	once    sync.Once
}

func newPause(op string, done bool) *pause {
	return &pause{at: proxytest.Call{Op: op, Done: done}, reached: make(chan struct{}), release: make(chan struct{})}
}

func (p *pause) hook(ctx context.Context, c proxytest.Call) error {
	if c.Op != p.at.Op || c.Done != p.at.Done {
		return nil
	}
	first := false
	p.once.Do(func() { first = true })
	if !first {
		return nil
	}
	close(p.reached)
	select {
	case <-p.release:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *pause) letGo() { close(p.release) }

var errBroken = errors.New("connection refused")

// broken is a hook with which every call fails.
func broken(context.Context, proxytest.Call) error { return errBroken }

// hanging is a hook with which every call goes on until its context ends.
func hanging(ctx context.Context, _ proxytest.Call) error {
	<-ctx.Done()
	return ctx.Err()
}

// slow is a hook with which every call takes d before it looks at what there is.
func slow(d time.Duration) proxytest.Hook {
	return func(ctx context.Context, c proxytest.Call) error {
		if c.Done {
			return nil
		}
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
