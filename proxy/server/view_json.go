package server

import (
	"bufio"
	"encoding/base64"
	"encoding/hex"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// jsonWriter writes JSON piece by piece. It puts the commas; that begin and end match, and that each
// key has a value, is its caller's to see to.
type jsonWriter struct {
	w     *bufio.Writer
	fresh bool // nothing has been written since begin
	num   []byte
}

func (j *jsonWriter) raw(s string) { _, _ = j.w.WriteString(s) } // errors stick to the bufio.Writer

func (j *jsonWriter) begin(bracket byte) {
	_ = j.w.WriteByte(bracket)
	j.fresh = true
}

func (j *jsonWriter) end(bracket byte) {
	_ = j.w.WriteByte(bracket)
	j.fresh = false
}

// item goes before each element of an array.
func (j *jsonWriter) item() {
	if !j.fresh {
		_ = j.w.WriteByte(',')
	}
	j.fresh = false
}

// key goes before each value of an object. It is one of ours; see userKey.
func (j *jsonWriter) key(k string) {
	j.item()
	j.raw(`"`)
	j.raw(k)
	j.raw(`":`)
}

// userKey writes a key of a map in a payload, which jsonText has passed.
func (j *jsonWriter) userKey(k []byte) {
	j.item()
	_ = j.w.WriteByte('"')
	if len(k) > 0 && k[0] == '$' {
		_ = j.w.WriteByte('$')
	}
	j.escaped(k)
	j.raw(`":`)
}

// field writes a key of ours with text.
func (j *jsonWriter) field(k, text string) {
	j.key(k)
	j.text(text)
}

func (j *jsonWriter) bool(b bool) { j.raw(strconv.FormatBool(b)) }

func (j *jsonWriter) int(i int64) {
	j.num = strconv.AppendInt(j.num[:0], i, 10)
	_, _ = j.w.Write(j.num)
}

func (j *jsonWriter) uint(u uint64) {
	j.num = strconv.AppendUint(j.num[:0], u, 10)
	_, _ = j.w.Write(j.num)
}

// float writes the shortest digits that are read back as f, with a point or an exponent, so that a
// reader that tells whole numbers from floats sees a float.
func (j *jsonWriter) float(f float64) {
	switch {
	case math.IsNaN(f):
		j.raw(`{"$float":"nan"}`)
		return
	case math.IsInf(f, 1):
		j.raw(`{"$float":"inf"}`)
		return
	case math.IsInf(f, -1):
		j.raw(`{"$float":"-inf"}`)
		return
	}
	format := byte('f')
	if abs := math.Abs(f); abs != 0 && (abs < 1e-4 || abs >= 1e16) {
		format = 'e' // as Python's repr
	}
	j.num = strconv.AppendFloat(j.num[:0], f, format, -1, 64)
	_, _ = j.w.Write(j.num)
	if format == 'f' && !strings.Contains(string(j.num), ".") {
		j.raw(".0")
	}
}

// timeLayout is RFC 3339 with the microseconds that jids have.
const timeLayout = "2006-01-02T15:04:05.000000Z07:00"

// time writes a time in UTC, null for none.
func (j *jsonWriter) time(t time.Time) {
	if t.IsZero() {
		j.raw("null")
		return
	}
	j.text(t.UTC().Format(timeLayout))
}

// text writes a string, marked where JSON cannot hold it.
func (j *jsonWriter) text(s string) { j.textBytes([]byte(s)) }

func (j *jsonWriter) textBytes(s []byte) {
	if !jsonText(s) {
		j.begin('{')
		j.key("$base64")
		j.base64(s)
		j.field("$type", "str")
		j.end('}')
		return
	}
	_ = j.w.WriteByte('"')
	j.escaped(s)
	_ = j.w.WriteByte('"')
}

// marked writes an object of one marker with bytes.
func (j *jsonWriter) marked(marker string, b []byte) {
	j.begin('{')
	j.key(marker)
	j.base64(b)
	j.end('}')
}

func (j *jsonWriter) base64(b []byte) {
	_ = j.w.WriteByte('"')
	e := base64.NewEncoder(base64.StdEncoding, j.w)
	_, _ = e.Write(b)
	_ = e.Close()
	_ = j.w.WriteByte('"')
}

func (j *jsonWriter) hex(b []byte) {
	j.raw(`"`)
	j.raw(hex.EncodeToString(b))
	j.raw(`"`)
}

// jsonText says whether a JSON string can hold s: it is UTF-8, except that lone surrogates may be in
// it as Python's surrogatepass writes them. A high one before a low one may not: as escapes the two
// would be read as one character.
func jsonText(s []byte) bool {
	afterHigh := false
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRune(s[i:])
		if r != utf8.RuneError || size > 1 {
			i, afterHigh = i+size, false
			continue
		}
		sur, ok := surrogate(s[i:])
		if !ok {
			return false
		}
		if afterHigh && sur >= 0xdc00 {
			return false
		}
		i, afterHigh = i+3, sur < 0xdc00
	}
	return true
}

// surrogate reads a surrogate at the start of s in the form that surrogatepass gives it.
func surrogate(s []byte) (rune, bool) {
	if len(s) < 3 || s[0] != 0xed || s[1] < 0xa0 || s[1] > 0xbf || s[2]&0xc0 != 0x80 {
		return 0, false
	}
	return 0xd000 | rune(s[1]&0x3f)<<6 | rune(s[2]&0x3f), true
}

// escaped writes the inside of a JSON string. s has passed jsonText.
func (j *jsonWriter) escaped(s []byte) {
	const digits = "0123456789abcdef"
	done := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' && c != 0xed {
			continue
		}
		if c == 0xed && s[i+1] < 0xa0 {
			continue // U+D000 to U+D7FF
		}
		_, _ = j.w.Write(s[done:i])
		done = i + 1
		switch c {
		case '"', '\\':
			_ = j.w.WriteByte('\\')
			_ = j.w.WriteByte(c)
		case '\n':
			j.raw(`\n`)
		case '\r':
			j.raw(`\r`)
		case '\t':
			j.raw(`\t`)
		case 0xed:
			sur, _ := surrogate(s[i:])
			j.num = append(j.num[:0], '\\', 'u', digits[sur>>12], digits[sur>>8&15], digits[sur>>4&15], digits[sur&15])
			_, _ = j.w.Write(j.num)
			i += 2
			done = i + 1
		default:
			j.num = append(j.num[:0], '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
			_, _ = j.w.Write(j.num)
		}
	}
	_, _ = j.w.Write(s[done:])
}

// isoDatetime reads what salt.payload writes for a datetime.
func isoDatetime(kind int8, data []byte) (iso string, ok bool) {
	if kind != saltDatetime {
		return "", false
	}
	t, err := time.Parse(datetimeLayout, string(data))
	if err != nil || t.Format(datetimeLayout) != string(data) {
		return "", false
	}
	return t.Format("2006-01-02T15:04:05.000000"), true
}
