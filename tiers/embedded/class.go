package embedded

import (
	"encoding/binary"
	"math/bits"
	"slices"
	"sync"
	"time"

	"saltern/job"
)

// class is how long the jobs of a part of the key space are kept, so that what has passed its time
// is one range of keys: 0 for the store's default, 1 for ever, else the seconds and one.
type class uint64

const (
	classDefault class = 0
	classForever class = 1
)

func classOf(k job.Keep) class {
	if k < 0 {
		return classDefault
	}
	return class(k) + 1
}

// keep is how long the class is kept. Beyond what a duration holds, 292 years, is for ever.
func (c class) keep(byDefault time.Duration) (d time.Duration, forever bool) {
	switch {
	case c == classDefault:
		return byDefault, false
	case c == classForever || c-1 > class(1<<63-1)/class(time.Second):
		return 0, true
	default:
		return time.Duration(c-1) * time.Second, false
	}
}

// maxClasses is how many classes there are before new ones are rounded up to a power of two of
// seconds: every class costs each list a seek, and anybody may choose how long a job is kept.
const maxClasses = 64

// classes are the classes that may have rows. They only grow.
type classes struct {
	mu    sync.Mutex // guards known
	known []class    // sorted; replaced, never changed
}

func (cs *classes) all() []class {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return cs.known
}

// admit gives the class under which jobs of class c go, and whether it is new. It is in all() before
// any row of it is written.
func (cs *classes) admit(c class) (admitted class, isNew bool) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	i, found := slices.BinarySearch(cs.known, c)
	if !found && len(cs.known) >= maxClasses {
		c = 1<<bits.Len64(uint64(c-2)) + 1
		i, found = slices.BinarySearch(cs.known, c)
	}
	if !found {
		cs.known = slices.Insert(slices.Clone(cs.known), i, c)
	}
	return c, !found
}

func classKey(c class) []byte {
	return binary.BigEndian.AppendUint64([]byte{tabClass}, uint64(c))
}

// asKeep is the keep that belongs to the class.
func (c class) asKeep() job.Keep {
	if c == classDefault {
		return job.KeepUnset
	}
	return job.Keep(c - 1)
}
