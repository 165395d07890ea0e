package cassandra

import (
	"math/bits"
	"time"

	"saltern/job"
)

// maxTTL is Cassandra's: 20 years. What is to live longer lives that long.
const maxTTL = 630_720_000

// The last moments at which a row can end. Up to version 4, and in 5 with its default storage_compatibility_mode, that is
// in January 2038, and a write with a later one is refused (CASSANDRA-14227); without compatibility it is in 2106.
var (
	lastEnd4 = time.Date(2038, 1, 18, 0, 0, 0, 0, time.UTC)
	lastEnd5 = time.Date(2106, 2, 6, 0, 0, 0, 0, time.UTC)
)

// longestTTL is the longest time to live that every version takes now.
func longestTTL(now time.Time) int {
	last := lastEnd4
	if now.After(lastEnd4.AddDate(-1, 0, 0)) {
		last = lastEnd5
	}
	return min(maxTTL, int(last.Sub(now)/time.Second))
}

// minTTL is how long a fact lives that comes when its job has passed its time: as long as the other stores take to
// remove it.
const minTTL = 3600

// life is how long rows of a job live.
type life struct {
	// ttl is in seconds from now on; 0 is for ever.
	ttl int
	// class is the power of two of seconds up to which the job's whole time goes. It is part of the keys of rows that
	// several facts write: see migrations.
	class int
}

// lifeOf is the life of a row of a job that began at from.
func (s *Store) lifeOf(keep job.Keep, from time.Time) life {
	if keep < 0 {
		keep = job.Keep(s.o.DefaultKeep / time.Second)
	}
	if keep == job.KeepForever {
		return life{class: forever}
	}
	if most := longestTTL(s.o.Now()); keep > job.Keep(most) {
		s.clampOnce.Do(func() {
			s.log.Warn("jobs are to be kept for longer than Cassandra can: they are kept for its most, or for ever with 0",
				"seconds", int64(keep), "most", most)
		})
		keep = job.Keep(min(keep, maxTTL))
	}
	return life{ttl: s.left(int(keep), from), class: bits.Len(uint(keep))}
}

// forever is the class of what has no end.
const forever = 99

// left is what is left now of a time to keep that began at from.
func (s *Store) left(keep int, from time.Time) int {
	age := s.o.Now().Sub(from) / time.Second
	return min(max(keep-int(age), minTTL), longestTTL(s.o.Now()))
}

// wholeDay is the time to live of a row that is to outlive all rows of its class and day.
func (s *Store) wholeDay(day time.Time, l life) int {
	if l.class == forever {
		return 0
	}
	return s.left(min(1<<l.class, maxTTL), day.Add(48*time.Hour))
}

func (s *Store) eventTTL(at time.Time) int { return s.left(int(s.o.EventKeep/time.Second), at) }

// stamp is the timestamp of a row, in microseconds since 1970: that of its version. Versions of one millisecond keep
// their order but for those that are closer than a microsecond; of two rows with one timestamp Cassandra takes the
// larger value, and a value begins with its version.
func stamp(v job.Version) int64 {
	const counterBits, nodeBits = 10, 10
	counter := int64(v>>nodeBits) & (1<<counterBits - 1)
	return v.Time().UnixMicro() + counter*1000>>counterBits
}

// dayOf is the day of a time, in UTC.
func dayOf(t time.Time) time.Time { return t.UTC().Truncate(24 * time.Hour) }

// slotLength is the span of one partition of events: at 1,000 events a second of 300 bytes it has 180 MB.
const slotLength = 10 * time.Minute

// slotOf is the number of the slot of a time since 1970.
func slotOf(t time.Time) int64 { return t.Unix() / int64(slotLength/time.Second) }

func slotTime(slot int64) time.Time { return time.Unix(slot*int64(slotLength/time.Second), 0).UTC() }
