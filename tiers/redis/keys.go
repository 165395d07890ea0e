package redis

import (
	"crypto/rand"
	"encoding/base64"
	"strings"

	"saltern/job"
)

// keys are the keys of a job in a generation.
type keys struct{ head, returns, lease string }

// tagEscaper keeps the hash tag what is between the braces: a jid may have braces of its own.
var tagEscaper = strings.NewReplacer("%", "%25", "}", "%7D")

func (t *Tier) keys(generation string, jid job.JID) keys {
	base := t.prefix + generation + ":{" + tagEscaper.Replace(string(jid)) + "}"
	return keys{head: base + "h", returns: base + "r", lease: base + "l"}
}

// These two are on one node of a cluster.
func (t *Tier) generationKey() string { return t.prefix + "{generation}" }
func (t *Tier) serversKey() string    { return t.prefix + "{generation}:servers" }

// reservationKey is not of a generation: a jid stays reserved.
func (t *Tier) reservationKey(jid job.JID) string {
	return t.prefix + "jid:{" + tagEscaper.Replace(string(jid)) + "}"
}

// Fields of a head.
const (
	fieldComplete = "c"
	fieldAbsent   = "a"
	fieldLoad     = "l"
	fieldEndTime  = "e"
	fieldNoCache  = "n"
	fieldMinions  = "m" // then a digest of the list
)

// layout is the version of how a job is laid out. What has another one is deleted by whoever meets it.
const layout = "1"

// minionField is the field of a minion's return. Those that begin with a zero byte are the hash's own.
func minionField(m job.Minion) string {
	if strings.HasPrefix(string(m), "\x00") {
		return "\x00\x00" + string(m)
	}
	return string(m)
}

// minionOf is the minion of a field, if it is that of a return.
func minionOf(field string) (job.Minion, bool) {
	if !strings.HasPrefix(field, "\x00") {
		return job.Minion(field), true
	}
	m, is := strings.CutPrefix(field, "\x00\x00")
	return job.Minion(m), is
}

// word makes a random word of 8 characters.
func word() string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // it never fails
	return base64.RawURLEncoding.EncodeToString(b[:])
}
