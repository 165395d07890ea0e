package configs

import (
	"regexp"
	"slices"
	"time"
)

// Redis is the cache that masters share, before Cassandra. Without addresses there is none.
type Redis struct {
	Addresses            []string `yaml:"addresses"`
	Mode                 string   `yaml:"mode"` // RedisStandalone, RedisSentinel or RedisCluster
	MasterName           string   `yaml:"master-name"`
	User                 string   `yaml:"user"`
	PasswordFile         string   `yaml:"password-file"`
	SentinelUser         string   `yaml:"sentinel-user"`
	SentinelPasswordFile string   `yaml:"sentinel-password-file"`
	Database             int      `yaml:"database"`
	PoolSize             int      `yaml:"pool-size"`
	Timeout              Duration `yaml:"timeout"`
	TTL                  Duration `yaml:"ttl"`
	TLS                  TLS      `yaml:"tls"`
}

// Values of the key redis.mode.
const (
	RedisStandalone = "standalone"
	RedisSentinel   = "sentinel"
	RedisCluster    = "cluster"
)

// Enabled says whether there is a Redis.
func (r Redis) Enabled() bool { return len(r.Addresses) > 0 }

func defaultRedis() Redis {
	return Redis{
		Mode: RedisStandalone, PoolSize: 32, Timeout: Duration(500 * time.Millisecond), TTL: Duration(time.Hour),
	}
}

// redisName is what Redis keys are made of.
var redisName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

func (v *validation) redis(c *Config) {
	r := &c.Redis
	for i, address := range r.Addresses {
		if address == "" || slices.Contains(r.Addresses[:i], address) {
			v.fault("redis.addresses", "%q is empty or there twice", address)
		}
	}
	v.oneOf("redis.mode", r.Mode, RedisStandalone, RedisSentinel, RedisCluster)
	switch {
	case r.Enabled() && !c.Cassandra.Enabled():
		v.fault("redis.addresses", "Redis is a cache before Cassandra, and cassandra.hosts is empty: "+
			"the embedded store needs none")
	case r.Mode == RedisStandalone && len(r.Addresses) > 1:
		v.fault("redis.addresses", "one address of a standalone Redis, not %d; or set redis.mode", len(r.Addresses))
	case r.Mode == RedisSentinel && r.MasterName == "":
		v.fault("redis.master-name", "the sentinels are asked for a primary by its name")
	case r.Mode == RedisCluster && r.Database != 0:
		v.fault("redis.database", "a cluster has only 0")
	}
	if r.Enabled() && !redisName.MatchString(c.Namespace) {
		v.fault("namespace", "%q becomes a part of keys: letters, digits, _, . and - are allowed, at most 64", c.Namespace)
	}
	if r.User != "" && r.PasswordFile == "" {
		v.fault("redis.user", "needs a password-file")
	}
	if r.SentinelUser != "" && r.SentinelPasswordFile == "" {
		v.fault("redis.sentinel-user", "needs a sentinel-password-file")
	}
	v.atLeast("redis.database", r.Database, 0)
	v.atLeast("redis.pool-size", r.PoolSize, 1)
	v.between("redis.timeout", r.Timeout, Duration(10*time.Millisecond), Duration(time.Minute))
	v.between("redis.ttl", r.TTL, Duration(time.Minute), 0)
	v.absolute("redis.password-file", r.PasswordFile)
	v.absolute("redis.sentinel-password-file", r.SentinelPasswordFile)
	v.tls("redis.tls", r.TLS)
}
