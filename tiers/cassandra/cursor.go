package cassandra

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc32"
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

// encodeCursor writes a place in a list as an opaque word. The checksum finds one that was cut or made up.
func encodeCursor(kind byte, at []byte) string {
	b := append([]byte{kind}, at...)
	b = binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	return base64.RawURLEncoding.EncodeToString(b)
}

func decodeCursor(kind byte, cursor string, least int) ([]byte, error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	n := len(b) - 4
	if err != nil || n < 1+least || b[0] != kind || binary.BigEndian.Uint32(b[n:]) != crc32.Checksum(b[:n], castagnoli) {
		return nil, fmt.Errorf("%w: cursor %.80q is not of this list", tiers.ErrInvalid, cursor)
	}
	return b[1:n], nil
}

// position is a place in the list of jobs, which is ordered by time and jid, newest first.
type position struct {
	at  int64 // microseconds since 1970
	jid job.JID
}

// newest is before all jobs.
var newest = position{at: math.MaxInt64}

func (p position) newer(o position) bool { return p.at > o.at || p.at == o.at && p.jid > o.jid }

func (p position) cursor() string {
	return encodeCursor(cursorJobs, append(binary.BigEndian.AppendUint64(nil, uint64(p.at)), p.jid...))
}

func parsePosition(cursor string) (position, error) {
	b, err := decodeCursor(cursorJobs, cursor, 8)
	if err != nil {
		return position{}, err
	}
	return position{int64(binary.BigEndian.Uint64(b)), job.JID(b[8:])}, nil
}

// ceilMicros is the first microsecond that is not before t.
func ceilMicros(t time.Time) int64 { return t.Add(time.Microsecond - 1).UnixMicro() }
