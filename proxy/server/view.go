package server

import (
	"bufio"
	"math"

	"github.com/tinylib/msgp/msgp"
)

// The view shows stored MessagePack as JSON, to people and their programs. It is made for each
// answer and never stored. What JSON has, stands for itself: text, whole numbers with all digits,
// floats that always have a point or an exponent (1.0 stays 1.0), maps with their keys in order. What
// JSON does not have is an object with one or two keys that begin with one dollar sign:
//
//	{"$base64": "gv8="}                  bytes
//	{"$base64": "gv8=", "$type": "str"}  text that is not UTF-8
//	{"$float": "nan"}                    nan, inf, -inf
//	{"$datetime": "2024-01-02T03:04:05.000678"}  a datetime, in whatever zone its sender meant
//	{"$map": [[key, value], …]}          a map with keys that are no text, or the same key twice
//	{"$ext": [5, "gv8="]}                any other MessagePack extension: its type and bytes
//	{"$msgpack": "gv8="}                 a value nested deeper than viewDepth, or one that is corrupt
//
// A key of a map that itself begins with a dollar sign has one more: {"$x": 1} is shown as {"$$x": 1}.
// So a key with a single dollar sign is always a marker, and taking one sign off the others gives
// the map back.
//
// Lone surrogates, which Salt has in file names that are not UTF-8, are escapes as Python's json
// writes them: "caf\udce9".

// viewDepth is how deep a value may nest and still be shown as JSON. Readers of JSON stop at some
// 1000 levels, and a map with odd keys takes three of them.
const viewDepth = 256

// saltDatetime is the extension that salt.payload uses for dates, and datetimeLayout their form.
const (
	saltDatetime   = 78
	datetimeLayout = "20060102T15:04:05.000000"
)

// view writes one packed value as JSON. It takes about as much memory as the value has maps, in
// bits, and as one branch of it has keys. The output is one whole JSON value whatever packed is.
func (j *jsonWriter) view(packed []byte) {
	plain, whole := survey(packed, viewDepth)
	if !whole {
		j.marked("$msgpack", packed)
		return
	}
	v := viewer{jsonWriter: j, plain: plain}
	v.value(packed, 0)
}

// viewer writes a value that has been surveyed: it is known to be whole, so no read in it fails.
type viewer struct {
	*jsonWriter
	plain []bool // of the maps still to come, whether each can be an object
}

// value writes the first value in b, which has depth containers around it, and gives what follows.
func (v *viewer) value(b []byte, depth int) []byte {
	switch msgp.NextType(b) {
	case msgp.NilType:
		v.raw("null")
		return b[1:]
	case msgp.BoolType:
		t, rest, _ := msgp.ReadBoolBytes(b)
		v.bool(t)
		return rest
	case msgp.IntType:
		i, rest, _ := msgp.ReadInt64Bytes(b)
		v.int(i)
		return rest
	case msgp.UintType:
		u, rest, _ := msgp.ReadUint64Bytes(b)
		v.uint(u)
		return rest
	case msgp.Float32Type:
		f, rest, _ := msgp.ReadFloat32Bytes(b)
		v.float(float64(f)) // Python has no other: these are the digits that it shows
		return rest
	case msgp.Float64Type:
		f, rest, _ := msgp.ReadFloat64Bytes(b)
		v.float(f)
		return rest
	case msgp.StrType:
		s, rest, _ := msgp.ReadStringZC(b)
		v.textBytes(s)
		return rest
	case msgp.BinType:
		s, rest, _ := msgp.ReadBytesZC(b)
		v.marked("$base64", s)
		return rest
	case msgp.ArrayType, msgp.MapType:
		if depth >= viewDepth {
			end := valueEnd(b)
			v.marked("$msgpack", b[:end])
			return b[end:]
		}
		if msgp.NextType(b) == msgp.ArrayType {
			return v.array(b, depth)
		}
		return v.mapping(b, depth)
	default:
		return v.extension(b)
	}
}

func (v *viewer) array(b []byte, depth int) []byte {
	n, b, _ := msgp.ReadArrayHeaderBytes(b)
	v.begin('[')
	for range n {
		v.item()
		b = v.value(b, depth+1)
	}
	v.end(']')
	return b
}

func (v *viewer) mapping(b []byte, depth int) []byte {
	plain := v.plain[0]
	v.plain = v.plain[1:]
	n, b, _ := msgp.ReadMapHeaderBytes(b)
	if !plain {
		v.begin('{')
		v.key("$map")
		v.begin('[')
		for range n {
			v.item()
			v.begin('[')
			v.item()
			b = v.value(b, depth+1)
			v.item()
			b = v.value(b, depth+1)
			v.end(']')
		}
		v.end(']')
		v.end('}')
		return b
	}
	v.begin('{')
	for range n {
		var key []byte
		key, b, _ = msgp.ReadStringZC(b)
		v.userKey(key)
		b = v.value(b, depth+1)
	}
	v.end('}')
	return b
}

func (v *viewer) extension(b []byte) []byte {
	head, body, _, _, _ := element(b, 0)
	kind, data, rest := int8(b[head]), b[head+1:head+body], b[head+body:]
	if iso, ok := isoDatetime(kind, data); ok {
		v.begin('{')
		v.key("$datetime")
		v.text(iso)
		v.end('}')
		return rest
	}
	v.begin('{')
	v.key("$ext")
	v.begin('[')
	v.item()
	v.int(int64(kind))
	v.item()
	v.base64(data)
	v.end(']')
	v.end('}')
	return rest
}

// valueEnd is where the first value in b ends; b is known to hold a whole one.
func valueEnd(b []byte) int {
	var w walker
	w.reset(math.MaxInt)
	_, _ = w.walk(b)
	return w.pos
}

// newJSONWriter writes to w. Errors of w stick to it and come out of its Flush.
func newJSONWriter(w *bufio.Writer) *jsonWriter { return &jsonWriter{w: w} }
