package cassandra

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/apache/cassandra-gocql-driver/v2"
)

// cluster is the driver's configuration. Each default that is not ours to trust is set, with the reason;
// cluster_test.go pins them.
func (o *Options) cluster(keyspace string, logger gocql.StructuredLogger) (*gocql.ClusterConfig, error) {
	c := gocql.NewCluster(o.Hosts...)
	c.Keyspace = keyspace
	// The driver's 11 s would outlive every caller.
	c.Timeout, c.WriteTimeout, c.ConnectTimeout = o.Timeout, o.Timeout, o.ConnectTimeout
	// A node that was away is tried again every second; by default after a minute.
	c.ReconnectInterval = time.Second
	c.ReconnectionPolicy = &gocql.ConstantReconnectionPolicy{MaxRetries: 3, Interval: time.Second}
	// All statements carry their timestamps, so trying one again changes nothing. Batches do not look at
	// this: see sendRows.
	c.DefaultIdempotence = true
	c.RetryPolicy = &gocql.SimpleRetryPolicy{NumRetries: 1}
	// A policy belongs to one session, so it is made here each time.
	fallback := gocql.RoundRobinHostPolicy()
	if o.Datacenter != "" {
		fallback = gocql.DCAwareRoundRobinPolicy(o.Datacenter)
	}
	c.PoolConfig.HostSelectionPolicy = gocql.TokenAwareHostPolicy(fallback, gocql.ShuffleReplicas())
	// Token awareness needs the keyspace's replication only, not every table of the cluster.
	c.Metadata.CacheMode = gocql.KeyspaceOnly
	// The 200 µs of waiting for company would be added to every lone read and write; writes that can be
	// joined are joined in the batcher.
	c.WriteCoalesceWaitTime = 0
	// Results are described anew with each answer, so that a migration under a running daemon cannot make
	// it misread rows (CASSANDRA-10786).
	c.DisableSkipMetadata = true
	if o.counts != nil {
		c.QueryObserver, c.BatchObserver, c.ConnectObserver = o.counts, o.counts, o.counts
	}
	// Silent by default.
	c.Logger = logger
	if o.User != "" {
		c.AuthProvider = func(*gocql.HostInfo) (gocql.Authenticator, error) { return o.authenticator() }
	}
	if o.TLS != nil {
		config, err := o.TLS.config()
		if err != nil {
			return nil, err
		}
		c.SslOpts = &gocql.SslOptions{Config: config, EnableHostVerification: true}
	}
	return c, nil
}

func (o *Options) authenticator() (gocql.Authenticator, error) {
	password, err := os.ReadFile(o.PasswordFile)
	if err != nil {
		return nil, fmt.Errorf("password file: %w", err)
	}
	return gocql.PasswordAuthenticator{
		Username: o.User, Password: strings.TrimSuffix(strings.TrimSuffix(string(password), "\n"), "\r"),
	}, nil
}

func (t *TLS) config() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if t.CAFile != "" {
		pem, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, fmt.Errorf("authorities to trust: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("authorities to trust: no certificate in %s", t.CAFile)
		}
	}
	if t.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("our certificate: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
