// Package configs has the daemon's configuration, one YAML file, and the files that document it.
// all-options.yaml is the manual: a test proves that it has every key with its default.
package configs

import (
	"embed"
	"time"
)

// Files are the documents of this folder: minimal.yaml, all-options.yaml, salt/, systemd/.
//
//go:embed minimal.yaml all-options.yaml salt systemd
var Files embed.FS

// Config is the configuration of the daemon. Default gives one; Load reads a file over it; Resolve
// fills in what depends on the machine.
//
// NOTE: all-options.yaml describes every key. Change both.
type Config struct {
	// DataDir is the folder of the embedded store; empty until Resolve.
	DataDir string `yaml:"data-dir"`
	// Listen are the addresses for Salt, each unix:PATH or tcp:HOST:PORT; empty until Resolve.
	Listen []string `yaml:"listen"`
	// SocketMode and SocketGroup say who may connect to a Unix socket. An empty group leaves that
	// of the process.
	SocketMode  Mode   `yaml:"socket-mode"`
	SocketGroup string `yaml:"socket-group"`
	// HTTP is the HOST:PORT for people, or "off". See HTTPEnabled.
	HTTP            string    `yaml:"http"`
	Log             Log       `yaml:"log"`
	Limits          Limits    `yaml:"limits"`
	Memory          Memory    `yaml:"memory"`
	Embedded        Embedded  `yaml:"embedded"`
	Cassandra       Cassandra `yaml:"cassandra"`
	Redis           Redis     `yaml:"redis"`
	Journal         Journal   `yaml:"journal"`
	Retention       Retention `yaml:"retention"`
	Read            Read      `yaml:"read"`
	Write           Write     `yaml:"write"`
	Traces          Traces    `yaml:"traces"`
	ShutdownTimeout Duration  `yaml:"shutdown-timeout"`
	// Namespace keeps apart the jobs of masters that share a store.
	Namespace string `yaml:"namespace"`
	// Master is the id recorded on loads and events whose sender named none.
	Master string `yaml:"master"`
	// Node is this daemon's number among those that share a store, 0 to MaxNodes-1, or AnyNode.
	Node int `yaml:"node"`
}

// Log says what is logged, and how.
type Log struct {
	Level  string `yaml:"level"`  // debug, info, warn or error
	Format string `yaml:"format"` // text or json
}

// Limits bound what clients may ask for.
type Limits struct {
	MaxPayload     Size     `yaml:"max-payload"`
	MaxConnections int      `yaml:"max-connections"`
	MaxInFlight    int      `yaml:"max-in-flight"`
	IdleTimeout    Duration `yaml:"idle-timeout"`
	MaxDepth       int      `yaml:"max-depth"`
}

// Memory is the cache in the process.
type Memory struct {
	MaxBytes    Size     `yaml:"max-bytes"`
	WindowShare float64  `yaml:"window-share"` // of MaxBytes, for fresh writes
	NegativeTTL Duration `yaml:"negative-ttl"`
}

// Embedded is the durable store in the process.
type Embedded struct {
	Cache   Size `yaml:"cache"`
	Reserve Size `yaml:"reserve"` // of free disk, below which writes are refused
}

// Retention says how long things are kept.
type Retention struct {
	DefaultKeep Duration `yaml:"default-keep"` // of jobs whose master named none
	Events      Duration `yaml:"events"`
}

// Read bounds reads.
type Read struct {
	SoftTimeout Duration `yaml:"soft-timeout"`
	Timeout     Duration `yaml:"timeout"`
	Staleness   Duration `yaml:"staleness"` // of running jobs that another master's daemon writes
}

// Write bounds writes, and says what acknowledges one where the store is Cassandra.
type Write struct {
	Timeout Duration `yaml:"timeout"`
	Ack     string   `yaml:"ack"` // AckStore, AckJournal or AckAll
	AckWait Duration `yaml:"ack-wait"`
}

// Traces says which calls are told to a collector of OpenTelemetry, and to which.
type Traces struct {
	Endpoint string   `yaml:"endpoint"` // a URL; empty: that of the environment
	Protocol string   `yaml:"protocol"` // grpc, http/protobuf, or empty: that of the environment
	Slow     Duration `yaml:"slow"`     // 0: the 99th percentile of the last minute
	Sample   float64  `yaml:"sample"`   // of the calls that are neither slow nor failed
}

// HTTPOff is the value of the key http that turns HTTP off.
const HTTPOff = "off"

// HTTPEnabled says whether HTTP is to be served.
func (c *Config) HTTPEnabled() bool { return c.HTTP != HTTPOff }

// Default is the configuration of a daemon that was given none. DataDir and Listen are left to
// Resolve.
func Default() *Config {
	return &Config{
		SocketMode: Mode(0o660),
		HTTP:       "127.0.0.1:4531",
		Log:        Log{Level: "info", Format: "text"},
		Limits: Limits{
			MaxPayload:     64 * MiB,
			MaxConnections: 4096,
			MaxInFlight:    512,
			IdleTimeout:    Duration(10 * time.Minute),
			MaxDepth:       1024,
		},
		Memory: Memory{
			MaxBytes:    64 * MiB,
			WindowShare: 0.25,
			NegativeTTL: Duration(time.Second),
		},
		Embedded:  Embedded{Cache: 32 * MiB, Reserve: 64 * MiB},
		Cassandra: defaultCassandra(),
		Redis:     defaultRedis(),
		Journal:   defaultJournal(),
		Retention: Retention{DefaultKeep: Duration(24 * time.Hour), Events: Duration(7 * 24 * time.Hour)},
		Read: Read{
			SoftTimeout: Duration(50 * time.Millisecond),
			Timeout:     Duration(10 * time.Second),
			Staleness:   Duration(time.Second),
		},
		Write: Write{
			Timeout: Duration(10 * time.Second),
			Ack:     AckStore,
			AckWait: Duration(50 * time.Millisecond),
		},
		Traces:          Traces{Sample: 0.01},
		ShutdownTimeout: Duration(10 * time.Second),
		Namespace:       "default",
		Node:            AnyNode,
	}
}
