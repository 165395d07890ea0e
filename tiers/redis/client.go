package redis

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// silence keeps the client from writing to standard error, a line for each failed dial: what it has to say comes
// back as an error, and is counted.
var silence = sync.OnceFunc(func() { goredis.SetLogger(silent{}) })

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// newClient makes the client. Nothing is dialled yet. Every option whose default has hurt somebody is set on
// purpose; a test pins each.
// met is called for each new connection.
func (o *Options) newClient(
	met func(context.Context, *goredis.Conn) error,
) (goredis.UniversalClient, error) {
	silence()
	u := &goredis.UniversalOptions{
		Addrs:         o.Addrs,
		ClientName:    "saltern",
		DB:            o.DB,
		MasterName:    o.MasterName,
		IsClusterMode: o.Mode == Cluster,
		// Answers are arrays and strings; with protocol 3 a server could push into the stream.
		Protocol:  2,
		OnConnect: met,

		// By default the deadline of a context does not end a call: 50 ms became 5 s.
		ContextTimeoutEnabled: true,
		DialTimeout:           o.DialTimeout,
		ReadTimeout:           o.ReadTimeout,
		WriteTimeout:          o.ReadTimeout,
		// One try: whoever calls decides on another. By default a refused port takes 20 dials and 1.7 s.
		MaxRetries:         -1,
		DialerRetries:      1,
		DialerRetryTimeout: time.Millisecond,
		// In a cluster: one for a slot that moved, one for a node that did not answer.
		MaxRedirects: 2,

		PoolSize:       o.PoolSize,
		MaxActiveConns: o.PoolSize,
		PoolTimeout:    o.PoolTimeout,
		// Dials beyond a few do not help a Redis that has come back.
		MaxConcurrentDials: min(o.PoolSize, 8),
		// Pipelines use the same connections: their own pool would come on top of PoolSize.
		PipelinePoolSize: -1,
		ConnMaxIdleTime:  5 * time.Minute,
		ReadBufferSize:   32 << 10,
		WriteBufferSize:  32 << 10,

		// Only Redis Enterprise knows these; others answer with an error for each connection.
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		DisableIdentity:          true,
	}
	if o.Mode != Sentinel {
		u.MasterName = ""
	}
	if o.PasswordFile != "" {
		u.CredentialsProviderContext = func(context.Context) (string, string, error) {
			password, err := readPassword(o.PasswordFile)
			return o.Username, password, err
		}
	}
	if o.SentinelPasswordFile != "" {
		password, err := readPassword(o.SentinelPasswordFile)
		if err != nil {
			return nil, fmt.Errorf("redis: %w", err)
		}
		u.SentinelUsername, u.SentinelPassword = o.SentinelUsername, password
	}
	if o.TLS != nil {
		config, err := o.TLS.config()
		if err != nil {
			return nil, fmt.Errorf("redis: %w", err)
		}
		u.TLSConfig = config
	}
	return goredis.NewUniversalClient(u), nil
}

func readPassword(file string) (string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("reading the password: %w", err)
	}
	return strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r"), nil
}

func (t *TLS) config() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if t.CAFile != "" {
		data, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, fmt.Errorf("reading the authorities to trust: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(data) {
			return nil, fmt.Errorf("no certificate in PEM in %s", t.CAFile)
		}
	}
	if t.CertFile != "" {
		load := func() (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
			return &pair, err
		}
		if _, err := load(); err != nil {
			return nil, fmt.Errorf("our certificate: %w", err)
		}
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	}
	return c, nil
}
