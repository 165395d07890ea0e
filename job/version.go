package job

import (
	"sync"
	"time"
)

// Version orders the facts of one key across masters: a hybrid logical clock in 61 bits. The high
// 41 are milliseconds since 2020, then 10 of a counter and 10 of the node that gave it out. It
// stays below 2^61, so that a rank can be put above it in a signed 64-bit timestamp (Cassandra's
// USING TIMESTAMP). Zero is older than every version.
type Version uint64

const (
	nodeBits    = 10
	counterBits = 10
	milliBits   = 41
	versionBits = milliBits + counterBits + nodeBits
	maxMillis   = 1<<milliBits - 1

	// MaxNode is the largest node number of a Clock.
	MaxNode = 1<<nodeBits - 1
	// MaxVersion is the largest version; it is reached in the year 2089.
	MaxVersion Version = 1<<versionBits - 1
)

// versionEpoch is the zero of versions: 41 bits of milliseconds from here last until 2089.
var versionEpoch = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()

// Time is when the version was given out, to the millisecond.
func (v Version) Time() time.Time {
	return time.UnixMilli(int64(v>>(counterBits+nodeBits)) + versionEpoch).UTC()
}

// VersionAt is the smallest version of a time, for comparing versions with times.
func VersionAt(t time.Time) Version {
	ms := t.UnixMilli() - versionEpoch
	switch {
	case ms < 0:
		return 0
	case ms > maxMillis:
		return MaxVersion
	default:
		return Version(ms) << (counterBits + nodeBits)
	}
}

// Clock gives out versions, each larger than the one before and never behind the wall clock. Two
// clocks of different nodes never give out the same version. Safe for concurrent use.
type Clock struct {
	now  func() time.Time
	node Version

	mu   sync.Mutex // guards last
	last Version    // without the node's bits
}

// NewClock makes the clock of a node. Only the low bits of node count (see MaxNode); now is
// time.Now but in tests.
func NewClock(node uint64, now func() time.Time) *Clock {
	return &Clock{now: now, node: Version(node & MaxNode)}
}

// Next gives out a version. A burst of more than 1024 in a millisecond, or a wall clock that went
// back, runs ahead of the wall clock rather than repeat one.
func (c *Clock) Next() Version {
	wall := VersionAt(c.now())
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = max(wall, c.last+1<<nodeBits)
	return c.last | c.node
}

// Observe makes the clock run past a version that was seen elsewhere, so that what is written after
// reading it is newer. A version further ahead than a day is not believed.
func (c *Clock) Observe(v Version) {
	if v > VersionAt(c.now().Add(maxAhead)) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = max(c.last, v&^MaxNode)
}
