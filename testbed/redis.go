package testbed

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// RedisOptions says how a Redis is started. The zero value is a plain one that takes anybody, keeps nothing on
// disk, and is empty at every start.
type RedisOptions struct {
	// Name tells several Redises of one bed apart; "redis" when empty.
	Name string
	// TLS makes the port one for TLS alone. Redis.CA is then the file to trust, and Redis.Cert one that has a
	// certificate and its key for clients, which have to show one.
	TLS bool
	// Users are ACL users, as a line of redis.conf has them after "user": "saltern on >secret ~* +@all". With
	// any, the default user is off.
	Users []string
	// Config is more lines of redis.conf.
	Config []string
}

// Redis is one node. It is a Service: it takes the same port at every start.
type Redis struct {
	// CA and Cert are paths; empty without TLS.
	CA, Cert string

	bed     *Bed
	options RedisOptions
	dir     string
	port    int
	address string // of a node that was there before us
	mode    []string
	process *Process
}

// NewRedis describes a node; Bed.Start starts it. Where the environment variable SALTERN_REDIS names the
// HOST:PORT of a running one, a node without options is that one, used as it is and never stopped.
func NewRedis(b *Bed, o RedisOptions) (*Redis, error) {
	if o.Name == "" {
		o.Name = "redis"
	}
	r := &Redis{bed: b, options: o, dir: filepath.Join(b.Dir, o.Name)}
	if !o.TLS && len(o.Users) == 0 && len(o.Config) == 0 {
		if r.address = os.Getenv("SALTERN_REDIS"); r.address != "" {
			return r, nil
		}
	}
	return r, r.prepare()
}

// StartRedis starts a node in a bed of its own. The bed's Close stops it.
func StartRedis(ctx context.Context, o RedisOptions) (*Bed, *Redis, error) {
	b, err := New("redis")
	if err != nil {
		return nil, nil, err
	}
	r, err := NewRedis(b, o)
	if err == nil {
		err = b.Start(ctx, r)
	}
	if err != nil {
		return nil, nil, errors.Join(err, b.Close())
	}
	return b, r, nil
}

// prepare takes a port and writes the configuration.
func (r *Redis) prepare() error {
	ports, err := FreePorts(1)
	if err != nil {
		return err
	}
	r.port = ports[0]
	if err := os.MkdirAll(r.dir, 0o755); err != nil {
		return fmt.Errorf("the folder of %s: %w", r.options.Name, err)
	}
	lines := []string{"bind 127.0.0.1", "dir " + r.dir, `save ""`, "appendonly no", "daemonize no"}
	if r.options.TLS {
		if r.CA, err = writeCertificates(r.dir); err != nil {
			return fmt.Errorf("certificates of %s: %w", r.options.Name, err)
		}
		r.Cert = filepath.Join(r.dir, "node.pem")
		lines = append(lines, "port 0", "tls-port "+strconv.Itoa(r.port), "tls-ca-cert-file "+r.CA,
			"tls-cert-file "+r.Cert, "tls-key-file "+r.Cert, "tls-auth-clients yes")
	} else {
		lines = append(lines, "port "+strconv.Itoa(r.port))
	}
	for _, user := range r.options.Users {
		lines = append(lines, "user "+user)
	}
	if len(r.options.Users) > 0 {
		lines = append(lines, "user default off")
	}
	lines = append(lines, r.options.Config...)
	if err := writeFile(r.conf(), strings.Join(lines, "\n")+"\n"); err != nil {
		return fmt.Errorf("configuration of %s: %w", r.options.Name, err)
	}
	return nil
}

func (r *Redis) conf() string { return filepath.Join(r.dir, "redis.conf") }

// Name implements Service.
func (r *Redis) Name() string { return r.options.Name }

// Address is the HOST:PORT for clients.
func (r *Redis) Address() string {
	if r.address != "" {
		return r.address
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(r.port))
}

// External says that the node was there before us (SALTERN_REDIS): it cannot be killed or hung.
func (r *Redis) External() bool { return r.address != "" }

// Start implements Service: it returns when the node answers. A stopped or killed node can be started again.
func (r *Redis) Start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if r.External() {
		return r.ping(ctx)
	}
	server, err := redisServer()
	if err != nil {
		return err
	}
	p, err := startProcess(r.bed, r.options.Name, nil, append([]string{server, r.conf()}, r.mode...)...)
	if err != nil {
		return err
	}
	r.process = p
	return p.await(ctx, 20*time.Millisecond, r.ping)
}

func redisServer() (string, error) {
	server, err := exec.LookPath("redis-server")
	if err != nil {
		return "", errors.New("redis-server is not installed: apt-get install -y --no-install-recommends redis-server")
	}
	return server, nil
}

// ping is nil when the node answers, or refuses to for want of a password.
func (r *Redis) ping(ctx context.Context) error {
	if r.options.TLS {
		// Without a certificate of ours: that the port is open is all that can be told.
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", r.Address())
		if err != nil {
			return err
		}
		return conn.Close()
	}
	_, err := r.Command(ctx, "PING")
	if err != nil && strings.Contains(err.Error(), "NOAUTH") {
		return nil
	}
	return err
}

// Command sends one command on a connection of its own, without TLS or a password, and gives what it answers as
// text. An error that Redis answers is an error.
func (r *Redis) Command(ctx context.Context, args ...string) (string, error) {
	return redisCommand(ctx, r.Address(), args...)
}

var errExternalRedis = errors.New("the Redis of SALTERN_REDIS is not ours to stop or hang")

// Stop implements Service. A node that was there before us is left alone.
func (r *Redis) Stop() error {
	if r.process == nil {
		return nil
	}
	// A node that hangs by our hand could not end.
	_ = r.Continue()
	return r.process.Terminate(10 * time.Second)
}

// Kill ends the node with SIGKILL and waits for it. All that it held is gone.
func (r *Redis) Kill() error {
	if r.process == nil {
		return errExternalRedis
	}
	return r.process.Kill()
}

// Hang stops the node with SIGSTOP: connections are still accepted by the system, and nothing answers.
func (r *Redis) Hang() error {
	if r.process == nil {
		return errExternalRedis
	}
	return r.process.hang()
}

// Continue ends Hang.
func (r *Redis) Continue() error {
	if r.process == nil {
		return errExternalRedis
	}
	return r.process.Signal(syscall.SIGCONT)
}
