package job

import (
	"strings"
	"time"
)

// JID is a job id. Salt's own form is 20 digits, the UTC time in microseconds, with an optional
// suffix (`20240801142738891639_4711`); but a jid is a string that anybody may choose, so it is
// never parsed for anything but its time and never built into a path or a pattern.
type JID string

// Minion is a minion id, unique among the minions of a master.
type Minion string

// Lengths above which an identifier is refused: nothing that Salt makes comes near them, and they
// become part of keys.
const (
	MaxJIDBytes    = 1024
	MaxMinionBytes = 1024
)

// jidDigits is the length of a jid in Salt's own form: YYYYMMDDhhmmss and six of microseconds.
const jidDigits = 20

// Time is the time that a jid in Salt's own form carries, and whether it has that form and names a
// time that exists. (Salt's jid_to_time raises on digits that are no date.)
func (j JID) Time() (time.Time, bool) {
	digits, suffix, _ := strings.Cut(string(j), "_")
	if len(digits) != jidDigits || (suffix == "" && len(j) != jidDigits) {
		return time.Time{}, false
	}
	for i := range len(digits) {
		if digits[i] < '0' || digits[i] > '9' {
			return time.Time{}, false
		}
	}
	t, err := time.Parse("20060102150405.000000", digits[:14]+"."+digits[14:])
	if err != nil {
		return time.Time{}, false
	}
	return t, true
}

// maxAhead is how far ahead of the clock a jid's own time may be and still be believed: enough for
// a master whose clock is wrong, not enough for a made-up jid to stay on top of every list.
const maxAhead = 24 * time.Hour

// earliest is the oldest believable time of a job: Salt's first release was in 2011.
var earliest = time.Date(2010, 1, 1, 0, 0, 0, 0, time.UTC)

// PlausibleTime is the time by which a job is ordered and aged: the jid's own where it has Salt's
// form and is believable at the time now, else now, which callers take once, from the first fact,
// and store with the job.
func (j JID) PlausibleTime(now time.Time) time.Time {
	t, ok := j.Time()
	if !ok || t.Before(earliest) || t.After(now.Add(maxAhead)) {
		return now.UTC().Truncate(time.Microsecond)
	}
	return t
}

// NewJID is the jid in Salt's own form for a time, as salt.utils.jid.gen_jid writes it.
func NewJID(t time.Time) JID {
	s := t.UTC().Format("20060102150405.000000")
	return JID(s[:14] + s[15:])
}
