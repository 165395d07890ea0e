package embedded

import (
	"encoding/binary"
	"errors"
	"time"

	"saltern/job"
)

// row is the summary of a job as it is stored under S: what lists show and filter by, and what a
// merge has to know without reading the job.
type row struct {
	jid   job.JID
	place place

	loadRank    job.Rank
	loadVersion job.Version
	// loadKeep is what the load says, anyKeep the longest that any fact of the job said.
	loadKeep, anyKeep job.Keep
	flags             uint64

	expected, missing, returned, failed int
	last                                uint64 // microseconds

	// Texts of the load; fun and master of the returns where there is none. Each is cut at maxText.
	fun, target, targetType, user, master string
}

// Flags of a row.
const (
	flagLoad = 1 << iota
	flagEndTime
	flagNoCache
	// flagCut says that a text was cut: the load has the whole.
	flagCut
)

// maxText bounds the texts in a row: it is written with every return, and the target of a job can be
// a list of 60,000 minions.
const maxText = 512

// keep is how long the job asks to be kept: as its load says, else as long as any fact says. It does
// not depend on the order of the facts.
func (r *row) keep() job.Keep {
	if r.has(flagLoad) && r.loadKeep >= 0 {
		return r.loadKeep
	}
	return r.anyKeep
}

func (r *row) has(flag uint64) bool { return r.flags&flag != 0 }

func (r *row) complete() bool { return r.missing == 0 && r.returned > 0 }

// setLoad takes what the row has of the load.
func (r *row) setLoad(l job.Load) {
	r.loadRank, r.loadVersion, r.loadKeep = l.Rank, l.Version, l.Keep
	r.flags = r.flags&^flagCut | flagLoad
	r.fun, r.target, r.targetType = r.cut(l.Fun), r.cut(l.Target), r.cut(l.TargetType)
	r.user, r.master = r.cut(l.User), r.cut(l.Master)
}

func (r *row) cut(s string) string {
	if len(s) <= maxText {
		return s
	}
	r.flags |= flagCut
	return s[:maxText]
}

// summary is the row as lists give it, with the default in place of an unset keep.
func (r *row) summary(byDefault job.Keep) job.Summary {
	keep := r.keep()
	if keep < 0 {
		keep = byDefault
	}
	return job.Summary{
		JID: r.jid, Time: microsTime(r.place.time), Fun: r.fun, Target: r.target,
		TargetType: r.targetType, User: r.user, Master: r.master, Keep: keep,
		Expected: r.expected, Missing: r.missing, Returned: r.returned, Failed: r.failed,
		Last: microsTime(r.last),
	}
}

// encodeRow writes what of a row is not in its key, as varints and counted strings, in an envelope.
// Fields are only ever appended; a reader takes zero for those that are not there.
func encodeRow(r *row) []byte {
	b := make([]byte, 0, 96)
	b = binary.AppendUvarint(b, uint64(r.loadRank))
	b = binary.AppendVarint(b, int64(r.loadKeep))
	b = binary.AppendVarint(b, int64(r.anyKeep))
	b = binary.AppendUvarint(b, r.flags)
	for _, n := range []int{r.expected, r.missing, r.returned, r.failed} {
		b = binary.AppendVarint(b, int64(n))
	}
	b = binary.AppendUvarint(b, r.last)
	for _, s := range []string{r.fun, r.target, r.targetType, r.user, r.master} {
		b = appendString(b, s)
	}
	return job.Seal(r.loadVersion, b)
}

func decodeRow(p place, jid job.JID, value []byte) (*row, error) {
	v, body, err := job.Open(value)
	if err != nil {
		return nil, err
	}
	f := fields{b: body}
	r := &row{jid: jid, place: p, loadVersion: v}
	r.loadRank = job.Rank(f.uint())
	r.loadKeep, r.anyKeep = job.Keep(f.int()), job.Keep(f.int())
	r.flags = f.uint()
	r.expected, r.missing = int(f.int()), int(f.int())
	r.returned, r.failed = int(f.int()), int(f.int())
	r.last = f.uint()
	r.fun, r.target, r.targetType = f.str(), f.str(), f.str()
	r.user, r.master = f.str(), f.str()
	return r, f.err
}

func encodePlace(p place) []byte { return job.Seal(0, p.append(nil)) }

func decodePlace(value []byte) (place, error) {
	_, b, err := job.Open(value)
	if err != nil || len(b) < placeBytes {
		return place{}, errors.Join(job.ErrCorrupt, err)
	}
	p, _ := parseSummaryKey(append([]byte{tabSummary}, b...))
	return p, nil
}

func encodeLast(l job.LastFunction) []byte {
	b := appendString(nil, l.Fun)
	b = appendString(b, string(l.JID))
	b = binary.AppendVarint(b, l.JobTime.UnixMicro())
	b = binary.AppendVarint(b, l.Seen.UnixMicro())
	failed := uint64(0)
	if l.Failed {
		failed = 1
	}
	return job.Seal(l.Version, binary.AppendUvarint(b, failed))
}

func decodeLast(m job.Minion, value []byte) (job.LastFunction, error) {
	v, body, err := job.Open(value)
	if err != nil {
		return job.LastFunction{}, err
	}
	f := fields{b: body}
	return job.LastFunction{
		Minion: m, Version: v, Fun: f.str(), JID: job.JID(f.str()), JobTime: f.time(),
		Seen: f.time(), Failed: f.uint() != 0,
	}, f.err
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// fields reads varints and counted strings; past the end zero values.
type fields struct {
	b   []byte
	err error
}

func (f *fields) uint() uint64 { return readVarint(f, binary.Uvarint) }
func (f *fields) int() int64   { return readVarint(f, binary.Varint) }

func readVarint[T any](f *fields, read func([]byte) (T, int)) T {
	var zero T
	if len(f.b) == 0 {
		return zero
	}
	v, n := read(f.b)
	if n <= 0 {
		f.b, f.err = nil, job.ErrCorrupt
		return zero
	}
	f.b = f.b[n:]
	return v
}

func (f *fields) str() string {
	n := f.uint()
	if n > uint64(len(f.b)) {
		f.b, f.err = nil, job.ErrCorrupt
		return ""
	}
	s := string(f.b[:n])
	f.b = f.b[n:]
	return s
}

func (f *fields) time() time.Time { return time.UnixMicro(f.int()).UTC() }
