package embedded

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"saltern/job"
	"saltern/tiers"
)

// Kinds of cursors: one list's cursor is not taken by another.
const (
	cursorJobs         = 'j'
	cursorNewestEvents = 'n'
	cursorOldestEvents = 'o'
)

// encodeCursor writes a place in a list as an opaque word. The checksum finds one that was cut or
// made up.
func encodeCursor(kind byte, at []byte) string {
	b := append([]byte{kind}, at...)
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
	return base64.RawURLEncoding.EncodeToString(b)
}

func decodeCursor(kind byte, cursor string) ([]byte, error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	n := len(b) - 4
	if err != nil || n < 1 || b[0] != kind ||
		binary.BigEndian.Uint32(b[n:]) != crc32.ChecksumIEEE(b[:n]) {
		return nil, fmt.Errorf("%w: cursor %.80q is not of this list", tiers.ErrInvalid, cursor)
	}
	return b[1:n], nil
}

// position is a place in the list of jobs, which is ordered by time and jid, newest first.
type position struct {
	time uint64
	jid  job.JID
}

func (p position) newer(o position) bool {
	return p.time > o.time || p.time == o.time && p.jid > o.jid
}

func (p position) cursor() string {
	return encodeCursor(cursorJobs, append(binary.BigEndian.AppendUint64(nil, p.time), p.jid...))
}

func parsePosition(cursor string) (position, error) {
	b, err := decodeCursor(cursorJobs, cursor)
	if err != nil {
		return position{}, err
	}
	if len(b) < 8 {
		return position{}, fmt.Errorf("%w: cursor too short", tiers.ErrInvalid)
	}
	return position{binary.BigEndian.Uint64(b), job.JID(b[8:])}, nil
}
