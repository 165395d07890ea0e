package configs

import (
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// maxSocketPath is the longest path of a Unix socket on Linux.
const maxSocketPath = 107

// Validate reports all faults at once; nil when there are none. Load and Parse do it already: call it
// after a change, such as a flag of the command line.
func (c *Config) Validate() error { return join("", c.faults()) }

func (c *Config) faults() []*Fault {
	v := &validation{}
	if c.DataDir != "" && !filepath.IsAbs(c.DataDir) {
		v.fault("data-dir", "%q is not absolute: it would depend on where the daemon is started", c.DataDir)
	}
	for i, address := range c.Listen {
		key := fmt.Sprintf("listen[%d]", i)
		v.listen(key, address)
		if slices.Contains(c.Listen[:i], address) {
			v.fault(key, "%q is there twice", address)
		}
	}
	if c.HTTPEnabled() {
		v.loopback("http", c.HTTP)
	}
	if c.SocketMode&0o600 != 0o600 {
		v.fault("socket-mode", "%v does not let the owner connect: 0600 is the least", c.SocketMode)
	}
	v.oneOf("log.level", c.Log.Level, "debug", "info", "warn", "error")
	v.oneOf("log.format", c.Log.Format, "text", "json")
	v.limits(&c.Limits)
	v.storage(c)
	v.cassandra(&c.Cassandra, c.Namespace)
	v.redis(c)
	v.journal(c)
	v.between("read.soft-timeout", c.Read.SoftTimeout, Duration(1), c.Read.Timeout)
	v.positive("read.timeout", c.Read.Timeout)
	v.positive("write.timeout", c.Write.Timeout)
	v.positive("shutdown-timeout", c.ShutdownTimeout)
	v.traces(&c.Traces)
	if c.Namespace == "" {
		v.fault("namespace", "a name is needed")
	}
	v.plain("namespace", c.Namespace)
	v.plain("master", c.Master)
	return v.faults
}

type validation struct{ faults []*Fault }

func (v *validation) fault(key, format string, args ...any) {
	v.faults = append(v.faults, &Fault{Key: key, Message: fmt.Sprintf(format, args...)})
}

func (v *validation) traces(t *Traces) {
	v.oneOf("traces.protocol", t.Protocol, "", "grpc", "http/protobuf")
	if !(t.Sample >= 0 && t.Sample <= 1) {
		v.fault("traces.sample", "%v is not between 0 and 1", t.Sample)
	}
	// The URL is not told: there may be a password in it.
	u, err := url.Parse(t.Endpoint)
	if t.Endpoint != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
		v.fault("traces.endpoint", "a URL is needed, as in http://127.0.0.1:4318")
	}
}

func (v *validation) limits(l *Limits) {
	// The upper bound is what one MessagePack bin holds, less what is around it.
	v.betweenSize("limits.max-payload", l.MaxPayload, KiB, 2*GiB)
	v.atLeast("limits.max-connections", l.MaxConnections, 1)
	v.atLeast("limits.max-in-flight", l.MaxInFlight, 1)
	v.positive("limits.idle-timeout", l.IdleTimeout)
	// Salt's own loads nest about 10 deep; Python's msgpack itself stops at 1024.
	v.atLeast("limits.max-depth", l.MaxDepth, 16)
	if l.MaxDepth > 100_000 {
		v.fault("limits.max-depth", "%d is more than 100000", l.MaxDepth)
	}
}

func (v *validation) storage(c *Config) {
	v.betweenSize("memory.max-bytes", c.Memory.MaxBytes, MiB, 16*TiB)
	if s := c.Memory.WindowShare; !(s >= 0.05 && s <= 0.95) {
		v.fault("memory.window-share", "%v is not between 0.05 and 0.95", s)
	}
	// Longer would make a job that another master published invisible for as long.
	v.between("memory.negative-ttl", c.Memory.NegativeTTL, Duration(1), Duration(60e9))
	v.betweenSize("embedded.cache", c.Embedded.Cache, MiB, 16*TiB)
	v.betweenSize("embedded.reserve", c.Embedded.Reserve, MiB, 16*TiB)
	// Zero is not for ever here: a daemon that keeps all by accident fills its disk. A master says
	// so for its own jobs with keep_jobs_seconds: 0.
	v.between("retention.default-keep", c.Retention.DefaultKeep, Duration(60e9), 0)
	v.between("retention.events", c.Retention.Events, Duration(60e9), 0)
}

func (v *validation) listen(key, address string) {
	network, rest, _ := strings.Cut(address, ":")
	switch {
	case network == "tcp":
		v.loopback(key, rest)
	case network != "unix":
		v.fault(key, "%q: unix:PATH or tcp:HOST:PORT is needed", address)
	case !filepath.IsAbs(rest):
		v.fault(key, "%q: the path of the socket has to be absolute", address)
	case len(rest) > maxSocketPath:
		v.fault(key, "%q: the path of a socket may have %d bytes, this one has %d", address, maxSocketPath, len(rest))
	}
}

// loopback takes HOST:PORT where only this machine can connect.
func (v *validation) loopback(key, address string) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		v.fault(key, "%q: HOST:PORT is needed, as in 127.0.0.1:4531", address)
		return
	}
	// With port 0 the system chooses one, as tests want it.
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		v.fault(key, "%q: the port is not one of 0 to 65535", address)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		v.fault(key, "%q can be reached from other machines, and there is no authentication yet: "+
			"use 127.0.0.1, [::1] or localhost", address)
	}
}

func (v *validation) oneOf(key, value string, values ...string) {
	if !slices.Contains(values, value) {
		v.fault(key, "%q is not one of %s", value, strings.Join(values, ", "))
	}
}

func (v *validation) atLeast(key string, n, least int) {
	if n < least {
		v.fault(key, "%d is less than %d", n, least)
	}
}

func (v *validation) positive(key string, d Duration) { v.between(key, d, 1, 0) }

// between takes a largest of 0 for no bound.
func (v *validation) between(key string, d, least, largest Duration) {
	switch {
	case d < least && least == 1:
		v.fault(key, "it has to be more than 0")
	case d < least:
		v.fault(key, "%v is less than %v", d, least)
	case largest > 0 && d > largest:
		v.fault(key, "%v is more than %v", d, largest)
	}
}

func (v *validation) betweenSize(key string, s, least, largest Size) {
	if s < least || s > largest {
		v.fault(key, "%v is not between %v and %v", s, least, largest)
	}
}

// plain refuses what would make a log or a key ambiguous.
func (v *validation) plain(key, value string) {
	if strings.ContainsFunc(value, unicode.IsControl) {
		v.fault(key, "%q has control characters", value)
	}
}
