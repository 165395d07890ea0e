package backplane_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"saltern/job"
	"saltern/proxy/backplane"
	"saltern/testbed"
)

var shared *testbed.Redis

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	bed, node, err := testbed.StartRedis(ctx, testbed.RedisOptions{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	shared = node
	goredis.SetLogger(quiet{}) // it logs every failed dial
	code := m.Run()
	if err := bed.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

var streams atomic.Int64

func newKey() string { return fmt.Sprintf("backplane-%d-%d", os.Getpid(), streams.Add(1)) }

// proxy is one end of a backplane.
type proxy struct {
	*backplane.Backplane
	gaps atomic.Int64
	stop func()

	mu      sync.Mutex // guards evicted
	evicted []job.JID
}

func newClient(t *testing.T, node *testbed.Redis) *goredis.Client {
	c := goredis.NewClient(&goredis.Options{
		Addr: node.Address(), Protocol: 2, ContextTimeoutEnabled: true, MaxRetries: -1, DialerRetries: 1,
		DialTimeout: 300 * time.Millisecond, ReadTimeout: time.Second,
	})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// start starts a proxy whose stop, called at the latest at the end of the test, waits for its farewell.
func start(t *testing.T, node *testbed.Redis, o backplane.Options) *proxy {
	t.Helper()
	p := &proxy{}
	if o.Client == nil {
		o.Client = newClient(t, node)
	}
	o.Evict = func(jid job.JID) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.evicted = append(p.evicted, jid)
	}
	o.Gap = func() { p.gaps.Add(1) }
	o.Logger = slog.New(slog.DiscardHandler)
	b, err := backplane.New(o)
	if err != nil {
		t.Fatal(err)
	}
	p.Backplane = b
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		b.Run(ctx)
		close(done)
	}()
	p.stop = sync.OnceFunc(func() {
		cancel()
		<-done
	})
	t.Cleanup(p.stop)
	return p
}

func (p *proxy) has(jid job.JID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Contains(p.evicted, jid)
}

func (p *proxy) publish(jid job.JID, n int) {
	p.Publish(job.Return{JID: jid, Minion: "a", Version: job.Version(n)})
}

// eventually waits for what another process takes its time for.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !is() {
		if time.Now().After(deadline) {
			t.Fatalf("not within 20 s: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// pair starts two proxies that have met.
func pair(t *testing.T, node *testbed.Redis, o backplane.Options) (a, b *proxy) {
	t.Helper()
	a, b = start(t, node, o), start(t, node, o)
	eventually(t, "the two have met", func() bool {
		return a.gaps.Load() == met && b.gaps.Load() == met && a.Healthy() && b.Healthy()
	})
	return a, b
}

// A beginning is a gap, and so is a proxy that is new to another.
const (
	began = 1
	met   = 2
)

func TestOthersEvict(t *testing.T) {
	t.Parallel()
	a, b := pair(t, shared, backplane.Options{Key: newKey()})
	odd := []job.JID{"20261201120000000000", "origin", ":", "a b", "\x00\xff", ""}
	for i, jid := range odd {
		a.publish(jid, i+1)
	}
	a.Publish(job.Event{Tag: "no job"})
	for _, jid := range odd {
		eventually(t, fmt.Sprintf("%q evicted", jid), func() bool { return b.has(jid) })
	}
	b.publish("back", 1)
	eventually(t, "evicted the other way round", func() bool { return a.has("back") })
	if len(a.evicted) != 1 {
		t.Errorf("a evicted %q; want only what b wrote", a.evicted)
	}
	if a.gaps.Load() != met || b.gaps.Load() != met {
		t.Errorf("gaps: %d and %d; want none but those of beginning and meeting", a.gaps.Load(), b.gaps.Load())
	}
}

func TestNamespacesAreApart(t *testing.T) {
	t.Parallel()
	a := start(t, shared, backplane.Options{Key: newKey()})
	other := start(t, shared, backplane.Options{Key: newKey()})
	eventually(t, "both work", func() bool { return a.Healthy() && other.Healthy() })
	a.publish("a", 1)
	sent := a.Stats().Published
	eventually(t, "a beat of each later", func() bool { return a.Stats().Published > sent+2 })
	if s := other.Stats(); s.Received != 0 || s.Evicted != 0 {
		t.Errorf("another namespace received %+v", s)
	}
}

// TestLastEntryLost: the last entry of a sender is lost, and no other comes: only the beat tells.
func TestLastEntryLost(t *testing.T) {
	t.Parallel()
	key := newKey()
	client := newClient(t, shared)
	slow := &holding{Client: client}
	a := start(t, shared, backplane.Options{Key: key})
	b := start(t, shared, backplane.Options{Key: key, Client: slow})
	eventually(t, "the two have met", func() bool { return b.gaps.Load() == met && b.Healthy() })

	slow.hold()
	a.publish("lost", 1)
	eventually(t, "the entry is in the stream", func() bool { return inStream(t, client, key, ":lost") })
	if err := client.XTrimMaxLen(t.Context(), key, 0).Err(); err != nil {
		t.Fatal(err)
	}
	slow.release()
	eventually(t, "the gap is seen", func() bool { return b.gaps.Load() == met+1 })
	if b.has("lost") {
		t.Error("an entry that was trimmed was received: the test tests nothing")
	}
}

func inStream(t *testing.T, c *goredis.Client, key, field string) bool {
	t.Helper()
	entries, err := c.XRange(t.Context(), key, "-", "+").Result()
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(entries, func(m goredis.XMessage) bool { return m.Values[field] != nil })
}

// holding keeps reads from reaching Redis while it holds.
type holding struct {
	backplane.Client
	mu sync.Mutex
}

func (h *holding) hold()    { h.mu.Lock() }
func (h *holding) release() { h.mu.Unlock() }

func (h *holding) XRead(ctx context.Context, a *goredis.XReadArgs) *goredis.XStreamSliceCmd {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.Client.XRead(context.WithoutCancel(ctx), a)
}

// TestTrimming: a stream that is shorter than what comes between two reads.
func TestTrimming(t *testing.T) {
	t.Parallel()
	key := newKey()
	client := newClient(t, shared)
	slow := &holding{Client: client}
	a := start(t, shared, backplane.Options{Key: key, MaxLen: 100})
	b := start(t, shared, backplane.Options{Key: key, Client: slow})
	eventually(t, "the two have met", func() bool { return b.gaps.Load() == met && b.Healthy() })
	slow.hold()
	for i := range 1000 {
		sent := a.Stats().Published
		a.publish(job.JID(fmt.Sprint(i)), i)
		eventually(t, "sent", func() bool { return a.Stats().Published > sent })
	}
	n, err := client.XLen(t.Context(), key).Result()
	if err != nil || n > 500 {
		t.Fatalf("the stream has %d entries, %v; want about 100", n, err)
	}
	slow.release()
	eventually(t, "the gap is seen", func() bool { return b.gaps.Load() == met+1 })
	eventually(t, "what is left is received", func() bool { return b.has("999") })
}

func TestFarewellIsNoGap(t *testing.T) {
	t.Parallel()
	a, b := pair(t, shared, backplane.Options{Key: newKey()})
	a.publish("last words", 1)
	a.stop()
	eventually(t, "last words received", func() bool { return b.has("last words") })
	// Long enough for a dead one to be found out.
	received := b.Stats().Published
	eventually(t, "some beats later", func() bool { return b.Stats().Published > received+24 })
	if b.gaps.Load() != met {
		t.Errorf("%d gaps; want none for a proxy that was stopped", b.gaps.Load()-met)
	}
}

// TestCrashIsAGap: a proxy that dies may have had something to say.
func TestCrashIsAGap(t *testing.T) {
	t.Parallel()
	key := newKey()
	var dead atomic.Bool
	b := start(t, shared, backplane.Options{Key: key})
	start(t, shared, backplane.Options{Key: key, Client: &mute{Client: newClient(t, shared), dead: &dead}})
	eventually(t, "b has met it", func() bool { return b.gaps.Load() == met })
	dead.Store(true)
	eventually(t, "its death is a gap", func() bool { return b.gaps.Load() == met+1 })
	// And it is new when it comes back.
	dead.Store(false)
	eventually(t, "its return is a gap", func() bool { return b.gaps.Load() == met+2 })
}

// mute sends nothing once it is dead.
type mute struct {
	backplane.Client
	dead *atomic.Bool
}

func (m *mute) XAdd(ctx context.Context, a *goredis.XAddArgs) *goredis.StringCmd {
	if m.dead.Load() {
		cmd := goredis.NewStringCmd(ctx)
		cmd.SetErr(context.DeadlineExceeded)
		return cmd
	}
	return m.Client.XAdd(ctx, a)
}

func startNode(t *testing.T) *testbed.Redis {
	t.Helper()
	bed, node, err := testbed.StartRedis(t.Context(), testbed.RedisOptions{Config: []string{"maxclients 1000"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := bed.Close(); err != nil {
			t.Error(err)
		}
	})
	return node
}

// TestRedisRestarts: killed and started again, empty. What was written while it was away is told once it is back.
func TestRedisRestarts(t *testing.T) {
	t.Parallel()
	node := startNode(t)
	a, b := pair(t, node, backplane.Options{Key: newKey()})
	if err := node.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "both are blind", func() bool { return !a.Healthy() && !b.Healthy() })
	a.publish("meanwhile", 1)
	if err := node.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "both see again", func() bool { return a.Healthy() && b.Healthy() })
	eventually(t, "what was written meanwhile is told", func() bool { return b.has("meanwhile") })
}

func TestRedisHangs(t *testing.T) {
	t.Parallel()
	node := startNode(t)
	a, b := pair(t, node, backplane.Options{Key: newKey()})
	if err := node.Hang(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "both are blind", func() bool { return !a.Healthy() && !b.Healthy() })
	a.publish("meanwhile", 1)
	if err := node.Continue(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "both see again", func() bool { return a.Healthy() && b.Healthy() })
	eventually(t, "what was written meanwhile is told", func() bool { return b.has("meanwhile") })
}

// TestTooMuchWhileAway: what is not kept is a gap to others.
func TestTooMuchWhileAway(t *testing.T) {
	t.Parallel()
	node := startNode(t)
	a, b := pair(t, node, backplane.Options{Key: newKey()})
	if err := node.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "both are blind", func() bool { return !a.Healthy() && !b.Healthy() })
	for i := range 10_001 {
		a.publish(job.JID(fmt.Sprint(i)), i)
	}
	before := b.gaps.Load()
	if err := node.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the gap is seen", func() bool { return b.gaps.Load() > before })
}

// TestStreamWithEarlierIDs: a new server whose clock is behind gives ids that the cursor has passed.
func TestStreamWithEarlierIDs(t *testing.T) {
	t.Parallel()
	key := newKey()
	client := newClient(t, shared)
	ahead := fmt.Sprintf("%d-0", time.Now().Add(time.Hour).UnixMilli())
	if err := client.XAdd(t.Context(), &goredis.XAddArgs{
		Stream: key, ID: ahead, Values: []any{"origin", "x", "number", 1},
	}).Err(); err != nil {
		t.Fatal(err)
	}
	b := start(t, shared, backplane.Options{Key: key})
	eventually(t, "works", b.Healthy)
	if err := client.Del(t.Context(), key).Err(); err != nil {
		t.Fatal(err)
	}
	gaps := b.gaps.Load()
	eventually(t, "the new stream is a gap", func() bool { return b.gaps.Load() > gaps })
	eventually(t, "works again", b.Healthy)
}

func TestForeignEntries(t *testing.T) {
	t.Parallel()
	key := newKey()
	client := newClient(t, shared)
	b := start(t, shared, backplane.Options{Key: key})
	eventually(t, "works", b.Healthy)
	for i, values := range [][]any{
		{"hello", "world"}, {"origin", "x", "number", "-1"}, {"origin", "", "number", "1"}, {"number", "1"},
	} {
		if err := client.XAdd(t.Context(), &goredis.XAddArgs{Stream: key, Values: values}).Err(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "counted, and a gap", func() bool {
			return b.Stats().Malformed == uint64(i+1) && b.gaps.Load() == int64(began+i+1)
		})
	}
	if !b.Healthy() {
		t.Error("what cannot be read makes the backplane blind")
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	ok := backplane.Options{
		Client: newClient(t, shared), Key: "k", Evict: func(job.JID) {}, Gap: func() {},
	}
	for name, spoil := range map[string]func(*backplane.Options){
		"no client": func(o *backplane.Options) { o.Client = nil },
		"no key":    func(o *backplane.Options) { o.Key = "" },
		"no evict":  func(o *backplane.Options) { o.Evict = nil },
		"no gap":    func(o *backplane.Options) { o.Gap = nil },
		"short lag": func(o *backplane.Options) { o.MaxLag = time.Millisecond },
	} {
		o := ok
		spoil(&o)
		if _, err := backplane.New(o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
