package job

import (
	"bytes"
	"cmp"
	"slices"
	"time"
)

// Fact is one of Load, Minions, Return, EndTime, NoCache or Event: all that is ever written.
type Fact interface {
	// Job is the jid that the fact belongs to, empty for an event.
	Job() JID
	// Kind names the kind of the fact: load, minions, return, end, nocache or event. Proxies send it
	// to each other, so a name once given stays.
	Kind() string
	// Stamp is the version that the fact was given, 0 when none yet.
	Stamp() Version
	// Size is about how many bytes the fact takes in memory.
	Size() int
}

// Minions are minions that a job was sent to: one list of possibly several. Batch mode, syndics and
// save_minions each add to them, so lists are united and never replaced.
type Minions struct {
	JID     JID
	Version Version
	IDs     []Minion
	// Syndic is the id of the syndic that named them; empty for a master's own list.
	Syndic string
	Keep   Keep
}

// EndTime is when a job ended, as the text that Salt made. It is given back as it came; only
// versions are compared.
type EndTime struct {
	JID     JID
	Version Version
	Text    string
	Keep    Keep
}

// NoCache marks a job whose returns are not to be kept (prep_jid with nocache).
type NoCache struct {
	JID     JID
	Version Version
	Keep    Keep
}

// LastFunction is the last function of a minion. It is not written by anyone: stores derive it from
// returns.
type LastFunction struct {
	Minion  Minion
	Fun     string
	JID     JID
	JobTime time.Time
	Version Version
	Failed  bool
	// Seen is when the last return of any job came, by the stores' clock.
	Seen time.Time
}

// Event is one event of a master's bus.
type Event struct {
	// ID is made by the sender and makes a resend no second event. It starts with the event's time
	// in microseconds, big-endian, so that ids sort as the events happened.
	ID         EventID
	Version    Version
	Master     string
	Tag        string
	Surrogates bool
	// Data is the packed data of the event. It may be kept and is not to be changed.
	Data []byte
}

// EventID identifies an event among those of its master: eight bytes of time in microseconds since
// 1970, eight of the sender's choice.
type EventID [16]byte

// Time is the time that the sender gave the event.
func (id EventID) Time() time.Time {
	var us uint64
	for _, b := range id[:8] {
		us = us<<8 | uint64(b)
	}
	return time.UnixMicro(int64(us)).UTC()
}

// factOverhead is about what the header of a fact takes in memory beside its strings and payloads.
const factOverhead = 192

func (f Load) Job() JID    { return f.JID }
func (f Minions) Job() JID { return f.JID }
func (f Return) Job() JID  { return f.JID }
func (f EndTime) Job() JID { return f.JID }
func (f NoCache) Job() JID { return f.JID }
func (f Event) Job() JID   { return "" }

func (f Load) Kind() string    { return "load" }
func (f Minions) Kind() string { return "minions" }
func (f Return) Kind() string  { return "return" }
func (f EndTime) Kind() string { return "end" }
func (f NoCache) Kind() string { return "nocache" }
func (f Event) Kind() string   { return "event" }

func (f Load) Stamp() Version    { return f.Version }
func (f Minions) Stamp() Version { return f.Version }
func (f Return) Stamp() Version  { return f.Version }
func (f EndTime) Stamp() Version { return f.Version }
func (f NoCache) Stamp() Version { return f.Version }
func (f Event) Stamp() Version   { return f.Version }

func (f Load) Size() int {
	return factOverhead + len(f.JID) + len(f.Payload) + len(f.Fun) + len(f.Target) + len(f.User)
}
func (f Minions) Size() int {
	n := factOverhead + len(f.JID)
	for _, id := range f.IDs {
		n += len(id) + 16
	}
	return n
}
func (f Return) Size() int {
	return factOverhead + len(f.JID) + len(f.Minion) + len(f.Fun) + f.PayloadBytes()
}
func (f EndTime) Size() int { return factOverhead + len(f.JID) + len(f.Text) }
func (f NoCache) Size() int { return factOverhead + len(f.JID) }
func (f Event) Size() int   { return factOverhead + len(f.Tag) + len(f.Master) + len(f.Data) }

// UnionMinions gives the sorted union of lists of minions, each id once.
func UnionMinions(lists ...[]Minion) []Minion {
	all := slices.Concat(lists...)
	slices.Sort(all)
	return slices.Compact(all)
}

// MergeEndTime gives the end time that stays of two of one job: the one of the higher version.
func MergeEndTime(a, b EndTime) EndTime {
	if cmp.Or(cmp.Compare(a.Version, b.Version), cmp.Compare(a.Text, b.Text),
		cmp.Compare(a.Keep, b.Keep)) >= 0 {
		return a
	}
	return b
}

// MergeNoCache gives the mark that stays of two of one job. Once set it stays; the older version is
// kept, so that the mark is the same everywhere.
func MergeNoCache(a, b NoCache) NoCache {
	if cmp.Or(cmp.Compare(a.Version, b.Version), cmp.Compare(a.Keep, b.Keep)) <= 0 {
		return a
	}
	return b
}

// MergeLastFunction gives the last function of two of one minion: that of the later job. Seen is
// the later of both.
func MergeLastFunction(a, b LastFunction) LastFunction {
	winner := a
	if cmp.Or(a.JobTime.Compare(b.JobTime), cmp.Compare(a.Version, b.Version),
		cmp.Compare(a.Fun, b.Fun), cmp.Compare(a.JID, b.JID), boolCompare(a.Failed, b.Failed)) < 0 {
		winner = b
	}
	if a.Seen.After(b.Seen) {
		winner.Seen = a.Seen
	} else {
		winner.Seen = b.Seen
	}
	return winner
}

// MergeEvent gives the event that stays of two with one master and id. A resend is equal but for
// its version, so which one stays matters only for the three laws.
func MergeEvent(a, b Event) Event {
	if cmp.Or(cmp.Compare(a.Version, b.Version), bytes.Compare(a.Data, b.Data),
		cmp.Compare(a.Tag, b.Tag), boolCompare(a.Surrogates, b.Surrogates)) <= 0 {
		return a
	}
	return b
}
