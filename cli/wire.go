package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"saltern/configs"
	"saltern/job"
	"saltern/policy"
	"saltern/proxy"
	"saltern/proxy/backplane"
	"saltern/proxy/journal"
	"saltern/proxy/server"
	"saltern/telemetry"
	"saltern/tiers"
	"saltern/tiers/cassandra"
	"saltern/tiers/embedded"
	"saltern/tiers/memory"
	"saltern/tiers/redis"
)

// daemon is everything that serve runs, in the order in which it starts: the store, the cache, the
// proxy over both, and the servers before it. It stops the other way round.
type daemon struct {
	telemetry *telemetry.Recorder
	journal   *journal.Store  // nil where the store is embedded
	embedded  *embedded.Store // nil where it is not
	guarded   []*proxy.Guarded
	traces    *telemetry.Traces // nil where nobody wants any
	log       *slog.Logger
	proxy     *proxy.Proxy
	rpc       *server.RPC
	http      *server.HTTP
	httpAddr  string        // where HTTP is served, empty when it is not
	opened    chan struct{} // closed once proxy is set
	fatal     chan error    // the disk failed under the store
	ready     atomic.Bool   // accepts calls
	grace     time.Duration // for calls under way when it stops
}

// open starts the daemon. Nothing is left running after an error.
func open(c *configs.Config, log *slog.Logger) (_ *daemon, err error) {
	d := &daemon{opened: make(chan struct{}), fatal: make(chan error, 1), log: log, grace: c.ShutdownTimeout.Std()}
	if err = d.openTelemetry(c, log); err != nil {
		return nil, err
	}
	if err = d.openProxy(c, log); err != nil {
		return nil, errors.Join(err, d.traces.Close())
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.stop())
		}
	}()
	// The proxy answers before anybody can ask: a client that can connect is served.
	d.ready.Store(true)
	if err = d.listen(c, log); err != nil {
		return nil, err
	}
	if err = d.listenHTTP(c, log); err != nil {
		return nil, err
	}
	return d, nil
}

// openProxy opens the tiers and the proxy over them. This and what it calls are the only places
// that name concrete tiers.
func (d *daemon) openProxy(c *configs.Config, log *slog.Logger) error {
	cache, err := memory.New(memory.Options{
		MaxBytes:    int64(c.Memory.MaxBytes),
		WindowShare: c.Memory.WindowShare,
	})
	if err != nil {
		return fmt.Errorf("cache in memory: %w", err)
	}
	o := proxy.Options{
		Cache:       cache,
		Clock:       job.NewClock(rand.Uint64(), time.Now),
		Logger:      log,
		Metrics:     d.telemetry.Metrics,
		ReadBudget:  c.Read.Timeout.Std(),
		WriteBudget: c.Write.Timeout.Std(),
		SoftTimeout: c.Read.SoftTimeout.Std(),
		NegativeTTL: c.Memory.NegativeTTL.Std(),
		Master:      c.Master,
	}
	if c.Redis.Enabled() {
		if err := d.openRedis(c, log, &o); err != nil {
			return errors.Join(err, cache.Close())
		}
	}
	// The store comes last: from then on it may tell the proxy of what it has.
	if o.Store, err = d.openStore(c, log); err != nil {
		for _, t := range o.Shared {
			err = errors.Join(err, t.Close())
		}
		return errors.Join(err, cache.Close())
	}
	if d.journal != nil {
		o.Staleness = c.Read.Staleness.Std()
		o.JIDNode, o.JIDNodes = jidNode(c), configs.MaxNodes
		o.Notes = d.journal
	}
	d.proxy = proxy.Open(o)
	d.telemetry.Metrics.Add(slices.Concat(
		memorySources(cache, int64(c.Memory.MaxBytes)), proxySources(d.proxy), breakerSources(d.guarded))...)
	close(d.opened)
	return nil
}

// openRedis opens the cache that masters share, and what tells other proxies of writes. It connects
// when it is used.
func (d *daemon) openRedis(c *configs.Config, log *slog.Logger, o *proxy.Options) error {
	t, err := redis.New(redis.Options{
		Addrs: c.Redis.Addresses, Mode: redis.Mode(c.Redis.Mode), MasterName: c.Redis.MasterName,
		Username: c.Redis.User, PasswordFile: c.Redis.PasswordFile,
		SentinelUsername: c.Redis.SentinelUser, SentinelPasswordFile: c.Redis.SentinelPasswordFile,
		TLS: redisTLS(c.Redis.TLS), DB: c.Redis.Database, Namespace: c.Namespace,
		PoolSize: c.Redis.PoolSize, ReadTimeout: c.Redis.Timeout.Std(), TTL: c.Redis.TTL.Std(),
		// A write may be that long on its way to the store after it was in Redis.
		Guard:    c.Cassandra.Timeout.Std() + time.Second,
		MaxValue: int(c.Limits.MaxPayload), Logger: log,
	})
	if err != nil {
		return err
	}
	b, err := backplane.New(backplane.Options{
		Client: t.Client(),
		Key:    fmt.Sprintf("saltern:%s:backplane", c.Namespace),
		Origin: cmp.Or(c.Master, "saltern"),
		Evict:  func(jid job.JID) { <-d.opened; d.proxy.Forget(jid) },
		Gap:    func() { <-d.opened; d.proxy.ForgetAll() },
		Logger: log,
	})
	if err != nil {
		return errors.Join(err, t.Close())
	}
	o.Backplane = b
	guarded := proxy.Guard(t, d.guardOptions(t.Name(), c.Redis.Timeout.Std(), log))
	d.guarded = append(d.guarded, guarded)
	o.Shared = []tiers.Tier{guarded}
	d.telemetry.Metrics.Add(slices.Concat(redisSources(t), backplaneSources(b))...)
	return nil
}

func redisTLS(t configs.TLS) *redis.TLS {
	if !t.Enabled {
		return nil
	}
	return &redis.TLS{CAFile: t.CAFile, CertFile: t.CertFile, KeyFile: t.KeyFile, ServerName: t.ServerName}
}

// guardOptions put a tier behind breakers whose changes are logged. The driver's own timeout comes
// first, with a better message; that of the guard is for a driver that hangs.
func (d *daemon) guardOptions(tier string, timeout time.Duration, log *slog.Logger) proxy.GuardOptions {
	breaker := func(class string) policy.BreakerOptions {
		return policy.BreakerOptions{OnChange: func(from, to policy.BreakerState) {
			log.Warn("breaker", "tier", tier, "calls", class, "from", from.String(), "to", to.String())
			d.telemetry.Metrics.BreakerChanged(tier, class, to.String())
		}}
	}
	return proxy.GuardOptions{Timeout: timeout + timeout/2, Read: breaker("read"), Write: breaker("write")}
}

// openStore opens the durable store: Cassandra behind a journal where it is configured, and the
// embedded one otherwise.
func (d *daemon) openStore(c *configs.Config, log *slog.Logger) (tiers.Store, error) {
	fatal := func(err error) {
		select {
		case d.fatal <- err:
		default: // one is enough
		}
	}
	if c.Cassandra.Enabled() {
		return d.openCassandra(c, log, fatal)
	}
	store, err := embedded.Open(embedded.Options{
		Dir:         c.DataDir,
		CacheBytes:  int64(c.Embedded.Cache),
		Reserve:     int64(c.Embedded.Reserve),
		DefaultKeep: c.Retention.DefaultKeep.Std(),
		EventKeep:   c.Retention.Events.Std(),
		Logger:      log,
		OnFatal:     fatal,
	})
	if err != nil {
		return nil, fmt.Errorf("embedded store: %w", err)
	}
	d.embedded = store
	return store, nil
}

func (d *daemon) openCassandra(c *configs.Config, log *slog.Logger, fatal func(error)) (tiers.Store, error) {
	// The session is made in the background: that Cassandra is away is no reason not to start.
	o := cassandraOptions(c, log)
	o.OnDown = func() { <-d.opened; d.journal.StoreLost() }
	remote, err := cassandra.Open(o)
	if err != nil {
		return nil, err
	}
	guarded := proxy.GuardStore(remote, d.guardOptions(remote.Name(), c.Cassandra.Timeout.Std(), log))
	d.journal, err = journal.Open(journal.Options{
		Dir:          filepath.Join(c.DataDir, "journal"),
		Under:        guarded,
		Ack:          journal.Ack(c.Write.Ack),
		AckWait:      c.Write.AckWait.Std(),
		WriteTimeout: c.Write.Timeout.Std(),
		Retain:       c.Journal.Retain.Std(),
		Quota:        int64(c.Journal.Quota),
		Reserve:      int64(c.Embedded.Reserve),
		ReplayRate:   c.Journal.ReplayRate,
		OnReplay:     func(firsts []job.Fact, took time.Duration) { d.replayed(remote.Name(), firsts, took) },
		OnReplayed:   func(facts []job.Fact) { <-d.opened; d.proxy.StoredLate(facts) },
		BeforeResend: remote.Unlearn,
		Logger:       log,
		OnFatal:      fatal,
	})
	if err != nil {
		return nil, errors.Join(err, guarded.Close())
	}
	d.guarded = append(d.guarded, guarded.Guarded)
	d.telemetry.Metrics.Add(slices.Concat(cassandraSources(remote), journalSources(d.journal))...)
	return d.journal, nil
}

// jidNode is this daemon's number among those that share a store.
func jidNode(c *configs.Config) int {
	if c.Node != configs.AnyNode {
		return c.Node
	}
	host, _ := os.Hostname() // without a name the folder has to do
	h := fnv.New32a()
	_, _ = fmt.Fprintf(h, "%s\x00%s", host, c.DataDir)
	return int(h.Sum32() % configs.MaxNodes)
}

func (d *daemon) listen(c *configs.Config, log *slog.Logger) error {
	o := server.RPCOptions{
		Jobs:      d.proxy,
		Telemetry: d.telemetry,
		Limits: server.Limits{
			MaxPayload:     int(c.Limits.MaxPayload),
			MaxDepth:       c.Limits.MaxDepth,
			MaxConnections: c.Limits.MaxConnections,
			MaxInFlight:    c.Limits.MaxInFlight,
			IdleTimeout:    c.Limits.IdleTimeout.Std(),
		},
		Version:   versionString(),
		Namespace: c.Namespace,
		Logger:    log,
	}
	if d.journal != nil {
		o.Journal = d.journal
	}
	if h, is := log.Handler().(leveled); is {
		o.LogLevel = h.level
	}
	if d.embedded != nil {
		o.Backup = d.embedded
	}
	d.rpc = server.NewRPC(o)
	for _, address := range c.Listen {
		l, err := server.Listen(address, fs.FileMode(c.SocketMode), c.SocketGroup)
		if err != nil {
			return err
		}
		d.rpc.Serve(l)
	}
	return nil
}

func (d *daemon) listenHTTP(c *configs.Config, log *slog.Logger) error {
	if !c.HTTPEnabled() {
		return nil
	}
	l, err := net.Listen("tcp", c.HTTP)
	if err != nil {
		return fmt.Errorf("http: %w (another address: --http HOST:PORT; none: --http off)", err)
	}
	d.http = server.NewHTTP(server.HTTPOptions{
		Jobs: d.proxy, Telemetry: d.telemetry, Explainer: d.proxy, Ready: d.isReady, Version: versionString(), Logger: log,
	})
	d.httpAddr = l.Addr().String()
	d.http.Serve(l)
	return nil
}

var errStopping = errors.New("saltern is stopping")

func (d *daemon) isReady() error {
	if !d.ready.Load() {
		return errStopping
	}
	return nil
}

// stop refuses new calls, lets those under way finish, and closes the tiers.
func (d *daemon) stop() error {
	d.ready.Store(false)
	ctx, cancel := context.WithTimeout(context.Background(), d.grace)
	defer cancel()
	var errs []error
	if d.rpc != nil {
		errs = append(errs, d.rpc.Shutdown(ctx))
	}
	if d.http != nil {
		errs = append(errs, d.http.Shutdown(ctx))
	}
	errs = append(errs, d.proxy.Close())
	if err := d.traces.Close(); err != nil {
		// What was not exported is lost; the jobs are not.
		d.log.Warn("the last traces were not exported", "err", err)
	}
	return errors.Join(errs...)
}
