package move

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tinylib/msgp/msgp"
)

// This file takes packed values apart without decoding them.

// checkPacked says what is wrong with a packed value: it is not whole, something follows it, or it has text
// that is no UTF-8, which Salt could not read either.
func checkPacked(b []byte) error {
	rest, err := msgp.Skip(b)
	switch {
	case err != nil:
		return fmt.Errorf("no MessagePack: %w", err)
	case len(rest) > 0:
		return fmt.Errorf("%d bytes follow the value", len(rest))
	}
	// Headers of maps and arrays are read over, so that what they hold comes next.
	for len(b) > 0 {
		switch msgp.NextType(b) {
		case msgp.MapType:
			_, b, err = msgp.ReadMapHeaderBytes(b)
		case msgp.ArrayType:
			_, b, err = msgp.ReadArrayHeaderBytes(b)
		case msgp.StrType:
			var s []byte
			if s, b, err = msgp.ReadStringZC(b); err == nil && !utf8.Valid(s) {
				err = errors.New("text that is no UTF-8")
			}
		default:
			b, err = msgp.Skip(b)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// entry is a key and its value, packed.
type entry struct{ key, value []byte }

// name is the key where it is text, else empty.
func (e entry) name() string {
	if msgp.NextType(e.key) != msgp.StrType {
		return ""
	}
	s, _, err := msgp.ReadStringZC(e.key)
	if err != nil {
		return ""
	}
	return string(s)
}

// entries are those of a packed map; none of anything else.
func entries(b []byte) []entry {
	if len(b) == 0 || msgp.NextType(b) != msgp.MapType {
		return nil
	}
	n, b, err := msgp.ReadMapHeaderBytes(b)
	if err != nil {
		return nil
	}
	var all []entry
	for range n {
		var e entry
		if e.key, b, err = cut(b); err != nil {
			return nil
		}
		if e.value, b, err = cut(b); err != nil {
			return nil
		}
		all = append(all, e)
	}
	return all
}

// cut takes the first packed value off b.
func cut(b []byte) (value, rest []byte, err error) {
	if rest, err = msgp.Skip(b); err != nil {
		return nil, nil, err
	}
	return b[:len(b)-len(rest)], rest, nil
}

// find is the value of a key, nil where there is none. The last one counts, as in Python.
func find(all []entry, key string) []byte {
	for _, e := range slices.Backward(all) {
		if e.name() == key {
			return e.value
		}
	}
	return nil
}

// join makes a packed map of entries.
func join(all []entry) []byte {
	b := msgp.AppendMapHeader(nil, uint32(len(all)))
	for _, e := range all {
		b = append(append(b, e.key...), e.value...)
	}
	return b
}

func stringKey(s string) []byte { return msgp.AppendString(nil, s) }

// elements are those of a packed array; none of anything else.
func elements(b []byte) [][]byte {
	if len(b) == 0 || msgp.NextType(b) != msgp.ArrayType {
		return nil
	}
	n, b, err := msgp.ReadArrayHeaderBytes(b)
	if err != nil {
		return nil
	}
	var all [][]byte
	for range n {
		var one []byte
		if one, b, err = cut(b); err != nil {
			return nil
		}
		all = append(all, one)
	}
	return all
}

// text is a packed value as the text of a header, as the returner's _joined makes it: the elements of a list
// are joined with commas. Values that no header has a use for are empty.
func text(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	switch msgp.NextType(b) {
	case msgp.StrType:
		s, _, _ := msgp.ReadStringZC(b)
		return string(s)
	case msgp.BinType:
		s, _, _ := msgp.ReadBytesZC(b)
		return strings.ToValidUTF8(string(s), "\ufffd")
	case msgp.ArrayType:
		var parts []string
		for _, one := range elements(b) {
			parts = append(parts, text(one))
		}
		return strings.Join(parts, ",")
	}
	if n := integer(b); n != nil {
		return strconv.FormatInt(*n, 10)
	}
	return ""
}

// integer is a packed whole number; nil for anything else.
func integer(b []byte) *int64 {
	if len(b) == 0 {
		return nil
	}
	switch msgp.NextType(b) {
	case msgp.IntType:
		if n, _, err := msgp.ReadInt64Bytes(b); err == nil {
			return &n
		}
	case msgp.UintType:
		if n, _, err := msgp.ReadUint64Bytes(b); err == nil && n <= math.MaxInt64 {
			signed := int64(n)
			return &signed
		}
	}
	return nil
}

// truth is a packed truth value; nil for anything else.
func truth(b []byte) *bool {
	if len(b) == 0 || msgp.NextType(b) != msgp.BoolType {
		return nil
	}
	v, _, err := msgp.ReadBoolBytes(b)
	if err != nil {
		return nil
	}
	return &v
}

// isFalse says whether a packed value is False.
func isFalse(b []byte) bool {
	v := truth(b)
	return v != nil && !*v
}
