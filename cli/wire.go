package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"time"

	"saltern/configs"
	"saltern/job"
	"saltern/proxy"
	"saltern/proxy/server"
	"saltern/tiers"
	"saltern/tiers/embedded"
	"saltern/tiers/memory"
)

// daemon is everything that serve runs, in the order in which it starts: the store, the cache, the
// proxy over both, and the servers before it. It stops the other way round.
type daemon struct {
	proxy    *proxy.Proxy
	rpc      *server.RPC
	http     *server.HTTP
	httpAddr string        // where HTTP is served, empty when it is not
	fatal    chan error    // the disk failed under the store
	ready    atomic.Bool   // accepts calls
	grace    time.Duration // for calls under way when it stops
}

// open starts the daemon. Nothing is left running after an error.
func open(c *configs.Config, log *slog.Logger) (_ *daemon, err error) {
	d := &daemon{fatal: make(chan error, 1), grace: c.ShutdownTimeout.Std()}
	if d.proxy, err = openProxy(c, log, d.fatal); err != nil {
		return nil, err
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
func openProxy(c *configs.Config, log *slog.Logger, fatal chan<- error) (*proxy.Proxy, error) {
	store, err := openStore(c, log, fatal)
	if err != nil {
		return nil, err
	}
	cache, err := memory.New(memory.Options{
		MaxBytes:    int64(c.Memory.MaxBytes),
		WindowShare: c.Memory.WindowShare,
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cache in memory: %w", err), store.Close())
	}
	return proxy.Open(proxy.Options{
		Cache:       cache,
		Store:       store,
		Clock:       job.NewClock(rand.Uint64(), time.Now),
		Logger:      log,
		ReadBudget:  c.Read.Timeout.Std(),
		WriteBudget: c.Write.Timeout.Std(),
		SoftTimeout: c.Read.SoftTimeout.Std(),
		NegativeTTL: c.Memory.NegativeTTL.Std(),
		Master:      c.Master,
	}), nil
}

func openStore(c *configs.Config, log *slog.Logger, fatal chan<- error) (tiers.Store, error) {
	store, err := embedded.Open(embedded.Options{
		Dir:         c.DataDir,
		CacheBytes:  int64(c.Embedded.Cache),
		Reserve:     int64(c.Embedded.Reserve),
		DefaultKeep: c.Retention.DefaultKeep.Std(),
		EventKeep:   c.Retention.Events.Std(),
		Logger:      log,
		OnFatal: func(err error) {
			select {
			case fatal <- err:
			default: // one is enough
			}
		},
	})
	if err != nil {
		return nil, fmt.Errorf("embedded store: %w", err)
	}
	return store, nil
}

func (d *daemon) listen(c *configs.Config, log *slog.Logger) error {
	d.rpc = server.NewRPC(server.RPCOptions{
		Jobs: d.proxy,
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
	})
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
		Jobs: d.proxy, Ready: d.isReady, Version: versionString(), Logger: log,
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
	return errors.Join(append(errs, d.proxy.Close())...)
}
