package configs

import (
	"path/filepath"
	"regexp"
	"slices"
	"time"
)

// Cassandra is the durable store that masters share. Without hosts there is none.
type Cassandra struct {
	Hosts             []string `yaml:"hosts"`
	Keyspace          string   `yaml:"keyspace"`
	Datacenter        string   `yaml:"datacenter"`
	ReplicationFactor int      `yaml:"replication-factor"` // for `saltern schema apply`
	User              string   `yaml:"user"`
	PasswordFile      string   `yaml:"password-file"`
	ReadConsistency   string   `yaml:"read-consistency"`
	WriteConsistency  string   `yaml:"write-consistency"`
	Timeout           Duration `yaml:"timeout"`
	HedgeAfter        Duration `yaml:"hedge-after"`
	TLS               TLS      `yaml:"tls"`
}

// TLS says whom to trust, and who we are.
type TLS struct {
	Enabled    bool   `yaml:"enabled"`
	CAFile     string `yaml:"ca-file"`
	CertFile   string `yaml:"cert-file"`
	KeyFile    string `yaml:"key-file"`
	ServerName string `yaml:"server-name"`
}

// Enabled says whether there is a Cassandra.
func (c Cassandra) Enabled() bool { return len(c.Hosts) > 0 }

func defaultCassandra() Cassandra {
	return Cassandra{
		Keyspace: "saltern", ReplicationFactor: 3, ReadConsistency: "LOCAL_QUORUM", WriteConsistency: "LOCAL_QUORUM",
		Timeout: Duration(2 * time.Second),
	}
}

// keyspaceName is what Cassandra takes without quotes.
var keyspaceName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,47}$`)

// consistencies are the levels that make sense for data that nobody reads before it writes.
var consistencies = []string{"ONE", "TWO", "THREE", "QUORUM", "ALL", "LOCAL_QUORUM", "EACH_QUORUM", "LOCAL_ONE"}

func (v *validation) cassandra(c *Cassandra, namespace string) {
	for i, host := range c.Hosts {
		if host == "" || slices.Contains(c.Hosts[:i], host) {
			v.fault("cassandra.hosts", "%q is empty or there twice", host)
		}
	}
	if !keyspaceName.MatchString(c.Keyspace) {
		v.fault("cassandra.keyspace", "%q is none: a to z, 0 to 9 and _ are allowed, at most 48, a letter first", c.Keyspace)
	}
	if c.Enabled() && !keyspaceName.MatchString(c.Keyspace+"_"+namespace) {
		v.fault("namespace", "%q becomes a part of the keyspace: a to z, 0 to 9 and _ are allowed", namespace)
	}
	v.atLeast("cassandra.replication-factor", c.ReplicationFactor, 1)
	if (c.User == "") != (c.PasswordFile == "") {
		v.fault("cassandra.user", "user and password-file need each other")
	}
	v.oneOf("cassandra.read-consistency", c.ReadConsistency, consistencies...)
	v.oneOf("cassandra.write-consistency", c.WriteConsistency, consistencies...)
	v.between("cassandra.timeout", c.Timeout, Duration(50*time.Millisecond), Duration(time.Minute))
	v.absolute("cassandra.password-file", c.PasswordFile)
	v.tls("cassandra.tls", c.TLS)
}

func (v *validation) tls(key string, t TLS) {
	if (t.CertFile == "") != (t.KeyFile == "") {
		v.fault(key+".cert-file", "cert-file and key-file need each other")
	}
	v.absolute(key+".ca-file", t.CAFile)
	v.absolute(key+".cert-file", t.CertFile)
	v.absolute(key+".key-file", t.KeyFile)
}

func (v *validation) absolute(key, path string) {
	if path != "" && !filepath.IsAbs(path) {
		v.fault(key, "%q is not absolute: it would depend on where the daemon is started", path)
	}
}
