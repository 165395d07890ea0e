package cassandra

import (
	"encoding/binary"
	"math"
	"time"

	"saltern/job"
	"saltern/tiers"
)

// Kinds of cursors: one list's cursor is not taken by another.
const (
	cursorJobs         = 'j'
	cursorNewestEvents = 'n'
	cursorOldestEvents = 'o'
)

// position is a place in the list of jobs, which is ordered by time and jid, newest first.
type position struct {
	at  int64 // microseconds since 1970
	jid job.JID
}

// newest is before all jobs.
var newest = position{at: math.MaxInt64}

func (p position) newer(o position) bool { return p.at > o.at || p.at == o.at && p.jid > o.jid }

func (p position) cursor() string {
	return tiers.EncodeCursor(cursorJobs, append(binary.BigEndian.AppendUint64(nil, uint64(p.at)), p.jid...))
}

func parsePosition(cursor string) (position, error) {
	b, err := tiers.DecodeCursor(cursorJobs, cursor, 8)
	if err != nil {
		return position{}, err
	}
	return position{int64(binary.BigEndian.Uint64(b)), job.JID(b[8:])}, nil
}

// ceilMicros is the first microsecond that is not before t.
func ceilMicros(t time.Time) int64 { return t.Add(time.Microsecond - 1).UnixMicro() }
