package cassandra

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"sync"
	"time"

	"github.com/apache/cassandra-gocql-driver/v2"
)

// Options of a Store. The zero value of each field but Hosts takes the default named.
type Options struct {
	// Hosts are the nodes to ask for the cluster first, each HOST or HOST:PORT. Required.
	Hosts []string
	// Keyspace has the tables; default "saltern". Masters that must not see each other's jobs have
	// keyspaces of their own: see KeyspaceOf.
	Keyspace string
	// Datacenter is the one to talk to. Empty: any node, which is right for one data centre only.
	Datacenter string
	// User and PasswordFile say who we are. The file is read anew for each connection, so that a password
	// can be changed; its last line feed does not count.
	User, PasswordFile string
	// TLS is nil for plain connections.
	TLS *TLS
	// ReadConsistency and WriteConsistency are as CQL writes them; default LOCAL_QUORUM. With less than
	// a quorum on both sides a read may miss what was acknowledged.
	ReadConsistency, WriteConsistency string
	// Timeout is the longest that one request may take; default 2 s. A call can make several.
	Timeout time.Duration
	// ConnectTimeout is the same for a new connection; default 2 s.
	ConnectTimeout time.Duration
	// HedgeAfter asks for the head of a job (its load) once more, mostly of another node, when there is no answer after
	// that; 0 never does.
	HedgeAfter time.Duration
	// ReplicationFactor is of the keyspace where the schema is created; default 3.
	ReplicationFactor int
	// CreateSchema creates and migrates the tables when the session is made: for tests and demonstrations.
	CreateSchema bool
	// DefaultKeep is how long jobs are kept of which no fact says it; default 24 h.
	DefaultKeep time.Duration
	// EventKeep is how long events are kept; default 168 h.
	EventKeep time.Duration
	// OnDown is called when a node went away, which may have lost what it acknowledged last: Cassandra marks its
	// commit log every 100 ms, and has it on disk after commitlog_sync_period. Optional; it may wait.
	OnDown func()
	// Logger is told what no caller is; default slog.Default().
	Logger *slog.Logger
	// Now is the clock; default time.Now.
	Now func() time.Time

	// nodes hears of nodes that come and go; nil where nobody wants to know.
	nodes  *nodes
	counts *counts // of the driver; nil for none
	// said is what the driver logged of all sessions.
	said *sync.Map
}

// TLS says whom to trust, and who we are.
type TLS struct {
	// CAFile is a file in PEM with the authorities to trust; empty for those of the system.
	CAFile string
	// CertFile and KeyFile are our own certificate, where the nodes ask for one.
	CertFile, KeyFile string
	// ServerName is what the nodes' certificates name; empty for the address that is dialled.
	ServerName string
}

const (
	defaultKeyspace = "saltern"
	defaultTimeout  = 2 * time.Second
)

// keyspaceName is what Cassandra takes without quotes.
var keyspaceName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,47}$`)

// KeyspaceOf is the keyspace of a namespace: that of the namespace "default", or of none, is base itself.
func KeyspaceOf(base, namespace string) string {
	if base == "" {
		base = defaultKeyspace
	}
	if namespace == "" || namespace == "default" {
		return base
	}
	return base + "_" + namespace
}

func (o *Options) setDefaults() error {
	o.Keyspace = cmp.Or(o.Keyspace, defaultKeyspace)
	o.ReadConsistency = cmp.Or(o.ReadConsistency, "LOCAL_QUORUM")
	o.WriteConsistency = cmp.Or(o.WriteConsistency, "LOCAL_QUORUM")
	o.Timeout = cmp.Or(o.Timeout, defaultTimeout)
	o.ConnectTimeout = cmp.Or(o.ConnectTimeout, defaultTimeout)
	o.ReplicationFactor = cmp.Or(o.ReplicationFactor, 3)
	o.DefaultKeep = cmp.Or(o.DefaultKeep, 24*time.Hour)
	o.EventKeep = cmp.Or(o.EventKeep, 7*24*time.Hour)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	if o.Now == nil {
		o.Now = time.Now
	}
	o.said = &sync.Map{}
	if o.OnDown == nil {
		o.OnDown = func() {}
	}
	return o.check()
}

// check finds all faults at once.
func (o *Options) check() error {
	var errs []error
	if len(o.Hosts) == 0 {
		errs = append(errs, errors.New("no hosts are named"))
	}
	if !keyspaceName.MatchString(o.Keyspace) {
		errs = append(errs, fmt.Errorf("%q is no keyspace: a to z, 0 to 9 and _ are allowed, at most 48, a letter first", o.Keyspace))
	}
	for _, text := range []string{o.ReadConsistency, o.WriteConsistency} {
		if _, err := gocql.ParseConsistencyWrapper(text); err != nil {
			errs = append(errs, fmt.Errorf("%q is no consistency level: such as LOCAL_QUORUM is one", text))
		}
	}
	if (o.User == "") != (o.PasswordFile == "") {
		errs = append(errs, errors.New("user and password-file need each other"))
	}
	if o.TLS != nil && (o.TLS.CertFile == "") != (o.TLS.KeyFile == "") {
		errs = append(errs, errors.New("the certificate and its key need each other"))
	}
	if o.ReplicationFactor < 1 {
		errs = append(errs, fmt.Errorf("replication factor %d: at least 1", o.ReplicationFactor))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("cassandra: %w", err)
	}
	return nil
}

func (o *Options) consistencies() (reads, writes gocql.Consistency) {
	return gocql.ParseConsistency(o.ReadConsistency), gocql.ParseConsistency(o.WriteConsistency)
}
