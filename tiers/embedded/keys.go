package embedded

import (
	"bytes"
	"encoding/binary"
	"time"

	"saltern/job"
)

// The first byte of a key says what it holds; doc.go has the table.
const (
	tabFormat   = 'V'
	tabClass    = 'C'
	tabPlace    = 'L'
	tabSummary  = 'S'
	tabData     = 'D'
	tabIndex    = 'I'
	tabMinion   = 'M'
	tabFunction = 'F'
	tabEvent    = 'E'
	tabTag      = 'T'
	tabRegister = 'R'
)

// The kinds of rows under D, in the order in which a job's rows are stored: the head comes first,
// so that it is read without touching a return.
const (
	kindEndTime  = 'E'
	kindLoad     = 'L'
	kindNoCache  = 'N'
	kindExpected = 'P'
	kindReturn   = 'R'
)

// The terms of the filter index.
const (
	termFun    = 'f'
	termMinion = 'm'
	termState  = 's'
	termTarget = 't'
	termUser   = 'u'
)

// Values of termState. Complete jobs have none: they are most of all, and a scan finds them at once.
const (
	stateFailed = "f"
	stateOpen   = "o"
)

// maxTerm bounds what of a value goes into an index key: a target can be a list of all minions. A
// longer value is found by its beginning and then compared in full.
const maxTerm = 128

// dayMicros and bucketMicros are the widths of the time buckets of the filter index and of the tag
// index. A bucket is the unit of its retention, and one seek of a search that finds nothing in it:
// 365 seeks a year of jobs, 1008 a week of events. A page of events reads a bucket's matching tags.
const (
	dayMicros    = 24 * 60 * 60 * 1_000_000
	bucketMicros = 10 * 60 * 1_000_000
)

// place is where the rows of a job are: under its class of retention, by its time.
type place struct {
	class class
	time  uint64 // microseconds since 1970
}

// micros is a time as keys have it. Nothing is older than 1970.
func micros(t time.Time) uint64 { return uint64(max(0, t.UnixMicro())) }

func microsTime(us uint64) time.Time { return time.UnixMicro(int64(us)).UTC() }

func (p place) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(p.class))
	return binary.BigEndian.AppendUint64(b, p.time)
}

const placeBytes = 16

func placeKey(jid job.JID) []byte { return append([]byte{tabPlace}, jid...) }

// summaryKey ends with the jid as it is, which sorts as its escaped form does.
func summaryKey(p place, jid job.JID) []byte {
	return append(p.append([]byte{tabSummary}), jid...)
}

func parseSummaryKey(key []byte) (place, job.JID) {
	key = key[1:]
	return place{
		class: class(binary.BigEndian.Uint64(key)), time: binary.BigEndian.Uint64(key[8:]),
	}, job.JID(key[placeBytes:])
}

// dataPrefix begins every row of a job.
func dataPrefix(p place, jid job.JID) []byte {
	return appendEscaped(p.append([]byte{tabData}), string(jid))
}

func minionDataKey(prefix []byte, kind byte, m job.Minion) []byte {
	return append(dataKey(prefix, kind), m...)
}

func dataKey(prefix []byte, kind byte) []byte {
	return append(append(make([]byte, 0, len(prefix)+48), prefix...), kind)
}

// runKey begins the index rows of one term in one day of a class. The rows follow by time and jid.
func runKey(c class, day uint64, kind byte, value string) []byte {
	b := append(dayKey(c, day), kind)
	return appendEscaped(b, value[:min(len(value), maxTerm)])
}

func dayKey(c class, day uint64) []byte {
	b := binary.BigEndian.AppendUint64([]byte{tabIndex}, uint64(c))
	return binary.BigEndian.AppendUint32(b, uint32(day))
}

// parseDay is the day of an index key.
func parseDay(key []byte) uint64 { return uint64(binary.BigEndian.Uint32(key[9:])) }

func termKey(p place, jid job.JID, kind byte, value string) []byte {
	b := runKey(p.class, p.time/dayMicros, kind, value)
	return append(binary.BigEndian.AppendUint64(b, p.time), jid...)
}

func minionKey(m job.Minion) []byte { return append([]byte{tabMinion}, m...) }

func functionPrefix(fun string) []byte { return appendEscaped([]byte{tabFunction}, fun) }

func functionKey(fun string, m job.Minion) []byte { return append(functionPrefix(fun), m...) }

// eventKey sorts as events happened: the id begins with the time.
func eventKey(id job.EventID, master string) []byte {
	return append(append([]byte{tabEvent}, id[:]...), master...)
}

// eventRef is the end of an event's key and of its tag's.
type eventRef struct {
	id     job.EventID
	master string
}

func (r eventRef) compare(o eventRef) int {
	if c := bytes.Compare(r.id[:], o.id[:]); c != 0 {
		return c
	}
	return bytes.Compare([]byte(r.master), []byte(o.master))
}

func parseEventRef(b []byte) eventRef {
	var r eventRef
	r.master = string(b[copy(r.id[:], b):])
	return r
}

func (r eventRef) micros() uint64 { return binary.BigEndian.Uint64(r.id[:]) }

// maxTag bounds what of a tag goes into its key, as maxTerm does for jobs.
const maxTag = 256

func bucketKey(bucket uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{tabTag}, bucket)
}

func tagKey(r eventRef, tag string) []byte {
	b := appendEscaped(bucketKey(r.micros()/bucketMicros), tag[:min(len(tag), maxTag)])
	return append(append(b, r.id[:]...), r.master...)
}

func parseTagKey(key []byte) (tag string, r eventRef) {
	tag, rest := cutEscaped(key[9:])
	return tag, parseEventRef(rest)
}

func registerKey(master string) []byte { return append([]byte{tabRegister}, master...) }

// Escaped strings keep their order and cannot be taken for another with what follows: a NUL is
// written as 00 FF, and 00 01 is the end.
const (
	escape     = 0x00
	escapedNUL = 0xFF
	escapedEnd = 0x01
)

func appendEscaped(b []byte, s string) []byte {
	return append(appendEscapedPrefix(b, s), escape, escapedEnd)
}

// appendEscapedPrefix leaves out the end, for a search by the beginning of a string.
func appendEscapedPrefix(b []byte, s string) []byte {
	for i := range len(s) {
		b = append(b, s[i])
		if s[i] == escape {
			b = append(b, escapedNUL)
		}
	}
	return b
}

// cutEscaped takes an escaped string off the front of a key that this package wrote.
func cutEscaped(b []byte) (string, []byte) {
	var s []byte
	for i := 0; i+1 < len(b); i++ {
		if b[i] != escape {
			s = append(s, b[i])
			continue
		}
		i++
		if b[i] == escapedEnd {
			return string(s), b[i+1:]
		}
		s = append(s, escape)
	}
	return string(s), nil
}

// after is the first key behind all that begin with prefix. No prefix here is all 0xFF.
func after(prefix []byte) []byte {
	end := bytes.Clone(prefix)
	for end[len(end)-1] == 0xFF {
		end = end[:len(end)-1]
	}
	end[len(end)-1]++
	return end
}
