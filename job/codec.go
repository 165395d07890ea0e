package job

import (
	"fmt"

	"github.com/tinylib/msgp/msgp"
)

// The codec writes a fact as an envelope around a MessagePack array: the kind of the fact, then its
// fields in the order below. A later version of Saltern may append fields; a reader ignores those
// that it does not know and takes the zero value for those that are not there, so neighbouring
// versions read each other's facts. Fields are never removed or reordered.
const (
	kindLoad = iota + 1
	kindMinions
	kindReturn
	kindEndTime
	kindNoCache
	kindEvent
)

// Encode writes a fact. Decode reads it back.
func Encode(f Fact) []byte {
	w := fieldWriter{buf: make([]byte, 0, f.Size())}
	switch f := f.(type) {
	case Load:
		w.begin(kindLoad, 11)
		w.str(string(f.JID))
		w.int(int64(f.Rank))
		w.str(f.Fun)
		w.str(f.Target)
		w.str(f.TargetType)
		w.str(f.User)
		w.str(f.Master)
		w.int(int64(f.Keep))
		w.bool(f.Surrogates)
		w.bin(f.Payload)
		return Seal(f.Version, w.buf)
	case Minions:
		w.begin(kindMinions, 5)
		w.str(string(f.JID))
		w.minions(f.IDs)
		w.str(f.Syndic)
		w.int(int64(f.Keep))
		return Seal(f.Version, w.buf)
	case Return:
		w.begin(kindReturn, 13)
		w.str(string(f.JID))
		w.str(string(f.Minion))
		w.str(f.Fun)
		w.str(f.Master)
		w.int(int64(f.Keep))
		w.optInt(f.RetCode)
		w.optBool(f.Success)
		w.bool(f.Failed)
		w.bool(f.Surrogates)
		w.bin(f.Ret)
		w.bin(f.Rest)
		w.bin(f.Times)
		return Seal(f.Version, w.buf)
	case EndTime:
		w.begin(kindEndTime, 4)
		w.str(string(f.JID))
		w.str(f.Text)
		w.int(int64(f.Keep))
		return Seal(f.Version, w.buf)
	case NoCache:
		w.begin(kindNoCache, 3)
		w.str(string(f.JID))
		w.int(int64(f.Keep))
		return Seal(f.Version, w.buf)
	case Event:
		w.begin(kindEvent, 6)
		w.bin(f.ID[:])
		w.str(f.Master)
		w.str(f.Tag)
		w.bool(f.Surrogates)
		w.bin(f.Data)
		return Seal(f.Version, w.buf)
	default:
		panic(fmt.Sprintf("job: unknown fact %T", f))
	}
}

// Decode reads what Encode wrote. Payloads may share memory with b. Whatever is wrong with b, the
// error is an ErrCorrupt.
func Decode(b []byte) (Fact, error) {
	v, body, err := Open(b)
	if err != nil {
		return nil, err
	}
	r := fieldReader{buf: body}
	r.begin()
	f := r.fact(v)
	if r.err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, r.err)
	}
	return f, nil
}

// fact reads the fields in the order in which Encode wrote them: composite literals are evaluated
// from top to bottom.
func (r *fieldReader) fact(v Version) Fact {
	switch kind := r.int(); kind {
	case kindLoad:
		return Load{
			JID: JID(r.str()), Version: v, Rank: Rank(r.int()), Fun: r.str(), Target: r.str(),
			TargetType: r.str(), User: r.str(), Master: r.str(), Keep: Keep(r.int()),
			Surrogates: r.bool(), Payload: r.bin(),
		}
	case kindMinions:
		return Minions{
			JID: JID(r.str()), Version: v, IDs: r.minions(), Syndic: r.str(), Keep: Keep(r.int()),
		}
	case kindReturn:
		return Return{
			JID: JID(r.str()), Minion: Minion(r.str()), Version: v, Fun: r.str(), Master: r.str(),
			Keep: Keep(r.int()), RetCode: r.optInt(), Success: r.optBool(), Failed: r.bool(),
			Surrogates: r.bool(), Ret: r.bin(), Rest: r.bin(), Times: r.bin(),
		}
	case kindEndTime:
		return EndTime{JID: JID(r.str()), Version: v, Text: r.str(), Keep: Keep(r.int())}
	case kindNoCache:
		return NoCache{JID: JID(r.str()), Version: v, Keep: Keep(r.int())}
	case kindEvent:
		e := Event{Version: v}
		if n := copy(e.ID[:], r.bin()); n != len(e.ID) {
			r.fail(fmt.Errorf("event id of %d bytes", n))
		}
		e.Master, e.Tag, e.Surrogates, e.Data = r.str(), r.str(), r.bool(), r.bin()
		return e
	default:
		r.fail(fmt.Errorf("fact of kind %d", kind))
		return nil
	}
}

// fieldWriter appends the fields of a fact.
type fieldWriter struct{ buf []byte }

func (w *fieldWriter) begin(kind int64, fields uint32) {
	w.buf = msgp.AppendInt64(msgp.AppendArrayHeader(w.buf, fields), kind)
}
func (w *fieldWriter) str(s string) { w.buf = msgp.AppendString(w.buf, s) }
func (w *fieldWriter) int(i int64)  { w.buf = msgp.AppendInt64(w.buf, i) }
func (w *fieldWriter) bool(b bool)  { w.buf = msgp.AppendBool(w.buf, b) }
func (w *fieldWriter) bin(b []byte) { w.buf = msgp.AppendBytes(w.buf, b) }

func (w *fieldWriter) optInt(i *int64) {
	if i == nil {
		w.buf = msgp.AppendNil(w.buf)
		return
	}
	w.int(*i)
}

func (w *fieldWriter) optBool(b *bool) {
	if b == nil {
		w.buf = msgp.AppendNil(w.buf)
		return
	}
	w.bool(*b)
}

func (w *fieldWriter) minions(ids []Minion) {
	w.buf = msgp.AppendArrayHeader(w.buf, uint32(len(ids)))
	for _, id := range ids {
		w.str(string(id))
	}
}

// fieldReader reads the fields of a fact. After the first error it reads zero values; past the last
// field too, for a fact that an older version wrote.
type fieldReader struct {
	buf  []byte
	left uint32
	err  error
}

func (r *fieldReader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

func (r *fieldReader) begin() {
	r.left, r.buf, r.err = msgp.ReadArrayHeaderBytes(r.buf)
}

// next says whether there is another field to read.
func (r *fieldReader) next() bool {
	if r.err != nil || r.left == 0 {
		return false
	}
	r.left--
	return true
}

// field reads one field with one of msgp's readers, which give the value, the rest and an error.
func field[T any](r *fieldReader, read func([]byte) (T, []byte, error)) T {
	var zero T
	if !r.next() {
		return zero
	}
	v, rest, err := read(r.buf)
	if err != nil {
		r.fail(err)
		return zero
	}
	r.buf = rest
	return v
}

func (r *fieldReader) str() string { return field(r, msgp.ReadStringBytes) }
func (r *fieldReader) int() int64  { return field(r, msgp.ReadInt64Bytes) }
func (r *fieldReader) bool() bool  { return field(r, msgp.ReadBoolBytes) }
func (r *fieldReader) bin() []byte { return field(r, msgp.ReadBytesZC) }

func (r *fieldReader) optInt() *int64 { return optional(r, r.int) }
func (r *fieldReader) optBool() *bool { return optional(r, r.bool) }

func optional[T any](r *fieldReader, read func() T) *T {
	if r.err == nil && r.left > 0 && msgp.IsNil(r.buf) {
		r.left--
		r.buf = r.buf[1:]
		return nil
	}
	if r.left == 0 {
		return nil
	}
	v := read()
	return &v
}

// trustedMinions is how many minions are made room for on the word of a count alone.
const trustedMinions = 1024

func (r *fieldReader) minions() []Minion {
	return field(r, func(b []byte) ([]Minion, []byte, error) {
		n, b, err := msgp.ReadArrayHeaderBytes(b)
		if err != nil {
			return nil, nil, err
		}
		// The count is not to be trusted before the ids are seen.
		ids := make([]Minion, 0, min(n, trustedMinions))
		for range n {
			var s string
			if s, b, err = msgp.ReadStringBytes(b); err != nil {
				return nil, nil, err
			}
			ids = append(ids, Minion(s))
		}
		return ids, b, nil
	})
}
