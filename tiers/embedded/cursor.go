package embedded

import (
	"encoding/binary"

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
	time uint64
	jid  job.JID
}

func (p position) newer(o position) bool {
	return p.time > o.time || p.time == o.time && p.jid > o.jid
}

func (p position) cursor() string {
	return tiers.EncodeCursor(cursorJobs, append(binary.BigEndian.AppendUint64(nil, p.time), p.jid...))
}

func parsePosition(cursor string) (position, error) {
	b, err := tiers.DecodeCursor(cursorJobs, cursor, 8)
	if err != nil {
		return position{}, err
	}
	return position{binary.BigEndian.Uint64(b), job.JID(b[8:])}, nil
}
