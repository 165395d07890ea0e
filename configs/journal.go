package configs

import "time"

// Journal keeps what was accepted and is not yet in Cassandra.
type Journal struct {
	Quota      Size     `yaml:"quota"`
	Retain     Duration `yaml:"retain"`
	ReplayRate int      `yaml:"replay-rate"` // facts a second
}

// Values of the key write.ack.
const (
	AckStore   = "store"
	AckJournal = "journal"
	AckAll     = "all"
)

// MaxNodes is how many daemons can share a store: each mints the jids of its own share of the
// microseconds.
const MaxNodes = 128

// AnyNode is the value of the key node that leaves the choice to the daemon.
const AnyNode = -1

func defaultJournal() Journal {
	return Journal{Quota: GiB, Retain: Duration(30 * time.Second), ReplayRate: 20_000}
}

func (v *validation) journal(c *Config) {
	v.betweenSize("journal.quota", c.Journal.Quota, MiB, 16*TiB)
	// Cassandra syncs its commit log every 10 s by default, and acknowledges before.
	v.between("journal.retain", c.Journal.Retain, 0, Duration(24*time.Hour))
	v.atLeast("journal.replay-rate", c.Journal.ReplayRate, 1)
	v.oneOf("write.ack", c.Write.Ack, AckStore, AckJournal, AckAll)
	v.between("write.ack-wait", c.Write.AckWait, 0, c.Write.Timeout)
	v.between("read.staleness", c.Read.Staleness, Duration(time.Millisecond), Duration(time.Minute))
	v.atLeast("node", c.Node, AnyNode)
	if c.Node >= MaxNodes {
		v.fault("node", "%d is more than %d", c.Node, MaxNodes-1)
	}
}
