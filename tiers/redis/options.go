package redis

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"time"
)

// Mode is how the Redis is run.
type Mode string

const (
	Standalone Mode = "standalone"
	Sentinel   Mode = "sentinel"
	Cluster    Mode = "cluster"
)

// Options of a Tier. The zero value of each field but Addrs takes the default named.
type Options struct {
	// Addrs are HOST:PORT of the node, of the sentinels, or of some nodes of the cluster. Required.
	Addrs []string
	// Mode is Standalone by default.
	Mode Mode
	// MasterName is what the sentinels call the primary. Required with Sentinel.
	MasterName string
	// Username is of the ACL user; empty for the default user.
	Username string
	// PasswordFile has the password. It is read anew for each connection, so that the password can be changed;
	// its last line feed does not count. Empty for none.
	PasswordFile string
	// SentinelUsername and SentinelPasswordFile are the same for the sentinels; that file is read once.
	SentinelUsername, SentinelPasswordFile string
	// TLS is nil for plain connections.
	TLS *TLS
	// DB is the database; 0 in a cluster.
	DB int

	// Namespace keeps masters apart that share a Redis and not their jobs; default "default".
	Namespace string
	// KeyPrefix begins all keys; default "saltern".
	KeyPrefix string

	// PoolSize is the largest number of connections, to each node of a cluster; default 32.
	PoolSize int
	// DialTimeout is how long a new connection may take; default 300 ms.
	DialTimeout time.Duration
	// ReadTimeout is how long an answer may take, and a question may take to be sent; default 500 ms.
	ReadTimeout time.Duration
	// PoolTimeout is how long a call waits for a connection when all are in use; default 50 ms.
	PoolTimeout time.Duration

	// TTL is how long a job is held at most; default 1 h. A fill may ask for less.
	TTL time.Duration
	// Guard is for how long after a fact of a job that is not held the job is not filled: the longest that a
	// write may take to reach the durable store after it was here. Default 3 s, negative for not at all.
	Guard time.Duration
	// Lease is how long the reader that missed may take to fill; default 10 s.
	Lease time.Duration
	// MaxValue is the largest payload of one fact; jobs with a larger one are not held. Default 64 MiB.
	MaxValue int
	// MaxJob is the most payload of returns, before compression, that a job is held with; default 256 MiB.
	MaxJob int

	// Logger is told what no caller is; default slog.Default().
	Logger *slog.Logger
	// Now is the clock; default time.Now.
	Now func() time.Time
}

// TLS says whom to trust, and who we are.
type TLS struct {
	// CAFile is a file in PEM with the authorities to trust; empty for those of the system.
	CAFile string
	// CertFile and KeyFile are our own certificate, where Redis asks for one. They are read for each
	// connection.
	CertFile, KeyFile string
	// ServerName is what the server's certificate names; empty for the host that is dialled.
	ServerName string
}

// word-like, so that no key has a brace before its tag or a wildcard of an ACL.
var namePattern = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

func (o *Options) setDefaults() error {
	o.Mode = cmp.Or(o.Mode, Standalone)
	o.Namespace = cmp.Or(o.Namespace, "default")
	o.KeyPrefix = cmp.Or(o.KeyPrefix, "saltern")
	o.PoolSize = cmp.Or(o.PoolSize, 32)
	o.DialTimeout = cmp.Or(o.DialTimeout, 300*time.Millisecond)
	o.ReadTimeout = cmp.Or(o.ReadTimeout, 500*time.Millisecond)
	o.PoolTimeout = cmp.Or(o.PoolTimeout, 50*time.Millisecond)
	o.TTL = cmp.Or(o.TTL, time.Hour)
	o.Guard = cmp.Or(o.Guard, 3*time.Second)
	o.Lease = cmp.Or(o.Lease, 10*time.Second)
	o.MaxValue = cmp.Or(o.MaxValue, 64<<20)
	o.MaxJob = cmp.Or(o.MaxJob, 256<<20)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	if o.Now == nil {
		o.Now = time.Now
	}
	return o.check()
}

// check finds all faults at once.
func (o *Options) check() error {
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if len(o.Addrs) == 0 {
		fault("no address is named")
	}
	switch o.Mode {
	case Standalone:
		if len(o.Addrs) > 1 {
			fault("%d addresses of a standalone Redis: one is allowed, or set the mode to sentinel or cluster", len(o.Addrs))
		}
	case Sentinel:
		if o.MasterName == "" {
			fault("sentinels are asked for a primary by its name: set the master name")
		}
	case Cluster:
		if o.DB != 0 {
			fault("database %d of a cluster: there is only 0", o.DB)
		}
	default:
		fault("mode %q: standalone, sentinel and cluster are known", o.Mode)
	}
	if o.Username != "" && o.PasswordFile == "" {
		fault("user %q needs a password file", o.Username)
	}
	for what, name := range map[string]string{"namespace": o.Namespace, "key prefix": o.KeyPrefix} {
		if !namePattern.MatchString(name) {
			fault("%s %q: letters, digits, _, . and - are allowed, at most 64", what, name)
		}
	}
	if o.TLS != nil && (o.TLS.CertFile == "") != (o.TLS.KeyFile == "") {
		fault("the certificate and its key need each other")
	}
	for what, d := range map[string]time.Duration{
		"dial timeout": o.DialTimeout, "read timeout": o.ReadTimeout, "pool timeout": o.PoolTimeout,
		"ttl": o.TTL, "lease": o.Lease,
	} {
		if d < time.Millisecond {
			fault("%s of %v: at least 1ms", what, d)
		}
	}
	if o.PoolSize < 1 || o.MaxValue < 1 || o.MaxJob < 1 || o.DB < 0 {
		fault("pool size %d, largest value %d, largest job %d, database %d: none may be negative",
			o.PoolSize, o.MaxValue, o.MaxJob, o.DB)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("redis: %w", err)
	}
	return nil
}
