package move

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tinylib/msgp/msgp"
)

// fromJSON makes a packed value of JSON as Python's json.dumps writes it, the same that the returner
// would pack of what json.loads makes of it. So NaN and Infinity are numbers, integers are never
// made floats, and those that MessagePack has no form for become text; the order of keys stays.
// encoding/json can do none of these. surrogates says that there is text with lone surrogates.
func fromJSON(text string) (packed []byte, surrogates bool, err error) {
	j := &jsonReader{in: text}
	out, err := j.value(nil, 0)
	if err == nil {
		if j.space(); j.at < len(j.in) {
			err = errors.New("something follows the value")
		}
	}
	if err != nil {
		return nil, false, fmt.Errorf("no JSON, at byte %d: %w", j.at, err)
	}
	return out, j.surrogates, nil
}

// maxJSONDepth is what Saltern takes, docs/protocol.md.
const maxJSONDepth = 1016

type jsonReader struct {
	in         string
	at         int
	surrogates bool
}

func (j *jsonReader) space() {
	for j.at < len(j.in) && strings.IndexByte(" \t\r\n", j.in[j.at]) >= 0 {
		j.at++
	}
}

// next takes a character that has to come, after white space.
func (j *jsonReader) next(c byte) bool {
	j.space()
	if j.at < len(j.in) && j.in[j.at] == c {
		j.at++
		return true
	}
	return false
}

// words are the values that are words.
var words = []struct {
	word   string
	packed []byte
}{
	{"null", msgp.AppendNil(nil)}, {"true", msgp.AppendBool(nil, true)}, {"false", msgp.AppendBool(nil, false)},
	{"NaN", msgp.AppendFloat64(nil, math.NaN())}, {"Infinity", msgp.AppendFloat64(nil, math.Inf(1))},
	{"-Infinity", msgp.AppendFloat64(nil, math.Inf(-1))},
}

func (j *jsonReader) value(out []byte, depth int) ([]byte, error) {
	if depth > maxJSONDepth {
		return out, errors.New("nested too deeply")
	}
	switch {
	case j.next('{'):
		return j.object(out, depth)
	case j.next('['):
		return j.list(out, depth)
	case j.next('"'):
		return j.str(out)
	}
	for _, w := range words {
		if strings.HasPrefix(j.in[j.at:], w.word) {
			j.at += len(w.word)
			return append(out, w.packed...), nil
		}
	}
	return j.number(out)
}

// object and list put the header before what they hold when the number of it is known.

func (j *jsonReader) object(out []byte, depth int) ([]byte, error) {
	head := len(out)
	var err error
	for n := uint32(0); ; n++ {
		if j.next('}') {
			return slices.Insert(out, head, msgp.AppendMapHeader(nil, n)...), nil
		}
		if n > 0 && !j.next(',') {
			return out, errors.New("a comma is missing")
		}
		if !j.next('"') {
			return out, errors.New("a key is missing")
		}
		if out, err = j.str(out); err != nil {
			return out, err
		}
		if !j.next(':') {
			return out, errors.New("a colon is missing")
		}
		if out, err = j.value(out, depth+1); err != nil {
			return out, err
		}
	}
}

func (j *jsonReader) list(out []byte, depth int) ([]byte, error) {
	head := len(out)
	var err error
	for n := uint32(0); ; n++ {
		if j.next(']') {
			return slices.Insert(out, head, msgp.AppendArrayHeader(nil, n)...), nil
		}
		if n > 0 && !j.next(',') {
			return out, errors.New("a comma is missing")
		}
		if out, err = j.value(out, depth+1); err != nil {
			return out, err
		}
	}
}

// number reads an integer as one, whatever its size, and everything else as a float.
func (j *jsonReader) number(out []byte) ([]byte, error) {
	begin := j.at
	for j.at < len(j.in) && strings.IndexByte("+-.0123456789eE", j.in[j.at]) >= 0 {
		j.at++
	}
	digits := j.in[begin:j.at]
	if i, err := strconv.ParseInt(digits, 10, 64); err == nil {
		if i >= 0 { // as Python packs it
			return msgp.AppendUint64(out, uint64(i)), nil
		}
		return msgp.AppendInt64(out, i), nil
	}
	if u, err := strconv.ParseUint(digits, 10, 64); err == nil {
		return msgp.AppendUint64(out, u), nil
	}
	if !strings.ContainsAny(digits, ".eE") {
		if _, ok := new(big.Int).SetString(digits, 10); ok {
			return msgp.AppendString(out, digits), nil
		}
	}
	f, err := strconv.ParseFloat(digits, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) { // Python takes 1e999 for infinity
		return out, errors.New("a value is missing")
	}
	return msgp.AppendFloat64(out, f), nil
}

// str reads text behind its first quote.
func (j *jsonReader) str(out []byte) ([]byte, error) {
	var b []byte
	for {
		end := strings.IndexAny(j.in[j.at:], `"\`)
		if end < 0 {
			return out, errors.New("text does not end")
		}
		plain := j.in[j.at : j.at+end]
		if !utf8.ValidString(plain) {
			return out, errors.New("text that is no UTF-8")
		}
		b = append(b, plain...)
		j.at += end + 1
		if j.in[j.at-1] == '"' {
			return msgp.AppendStringFromBytes(out, b), nil
		}
		var err error
		if b, err = j.escape(b); err != nil {
			return out, err
		}
	}
}

const escapes, escaped = `"\/bfnrt`, "\"\\/\b\f\n\r\t"

func (j *jsonReader) escape(b []byte) ([]byte, error) {
	if j.at >= len(j.in) {
		return b, errors.New("text does not end")
	}
	c := j.in[j.at]
	j.at++
	if i := strings.IndexByte(escapes, c); i >= 0 {
		return append(b, escaped[i]), nil
	}
	if c != 'u' {
		return b, errors.New("an escape that JSON does not have")
	}
	r, err := j.hex()
	if err != nil {
		return b, err
	}
	if r >= 0xd800 && r < 0xdc00 && strings.HasPrefix(j.in[j.at:], `\u`) {
		before := j.at
		j.at += 2
		low, err := j.hex()
		if err != nil {
			return b, err
		}
		if low >= 0xdc00 && low < 0xe000 {
			return utf8.AppendRune(b, 0x10000+(r-0xd800)<<10+(low-0xdc00)), nil
		}
		j.at = before
	}
	if r >= 0xd800 && r < 0xe000 {
		// As Python's surrogatepass writes it; utf8 has no form for it.
		j.surrogates = true
		return append(b, byte(0xe0|r>>12), byte(0x80|r>>6&0x3f), byte(0x80|r&0x3f)), nil
	}
	return utf8.AppendRune(b, r), nil
}

func (j *jsonReader) hex() (rune, error) {
	if j.at+4 > len(j.in) {
		return 0, errors.New("text does not end")
	}
	n, err := strconv.ParseUint(j.in[j.at:j.at+4], 16, 16)
	if err != nil {
		return 0, errors.New(`\u without four digits`)
	}
	j.at += 4
	return rune(n), nil
}
