package configs

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"strconv"
	"strings"
	"time"
)

// Size is a number of bytes. In the file it has a unit: 64MiB.
type Size int64

// Units of Size.
const (
	KiB Size = 1 << 10
	MiB Size = 1 << 20
	GiB Size = 1 << 30
	TiB Size = 1 << 40
)

// sizeUnits go from the largest to the smallest.
var sizeUnits = []struct {
	name string
	size Size
}{{"TiB", TiB}, {"GiB", GiB}, {"MiB", MiB}, {"KiB", KiB}, {"B", 1}}

// UnmarshalText reads a whole number with a unit. A number without one is refused: it would be a
// guess; 0 needs none.
func (s *Size) UnmarshalText(text []byte) error {
	digits, unit := splitUnit(string(text))
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || (unit == "" && n != 0) {
		return sizeError(string(text))
	}
	if unit == "" {
		*s = 0
		return nil
	}
	for _, u := range sizeUnits {
		if u.name != unit {
			continue
		}
		if n > math.MaxInt64/int64(u.size) {
			return fmt.Errorf("%q is more bytes than can be counted", text)
		}
		*s = Size(n) * u.size
		return nil
	}
	return sizeError(string(text))
}

// sizeError knows the usual slip: decimal or short units where only binary ones are taken.
func sizeError(text string) error {
	digits, unit := splitUnit(text)
	guess := "64MiB"
	if _, err := strconv.ParseInt(digits, 10, 64); err == nil {
		switch strings.ToLower(unit) {
		case "", "b":
			guess = digits + "B"
		case "k", "kb", "kib", "m", "mb", "mib", "g", "gb", "gib", "t", "tb", "tib":
			guess = digits + strings.ToUpper(unit[:1]) + "iB"
		}
	}
	return fmt.Errorf("%q is no size: a whole number and a unit (B, KiB, MiB, GiB, TiB) are needed, as in %s",
		text, guess)
}

// splitUnit takes digits apart from what follows them.
func splitUnit(s string) (digits, unit string) {
	s = strings.TrimSpace(s)
	end := strings.IndexFunc(s, func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 {
		return s, ""
	}
	return s[:end], strings.TrimSpace(s[end:])
}

// String is the size in the largest unit that fits it exactly.
func (s Size) String() string {
	for _, u := range sizeUnits {
		if s != 0 && s%u.size == 0 {
			return strconv.FormatInt(int64(s/u.size), 10) + u.name
		}
	}
	return "0"
}

// MarshalText is String.
func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Duration is a time span. In the file it is written as Go does (10s, 1h30m, 50ms), with d for days
// of 24 hours in front: 7d, 1d12h.
type Duration time.Duration

const day = 24 * time.Hour

// UnmarshalText reads a duration that is not negative. A number without a unit is refused, but 0.
func (d *Duration) UnmarshalText(text []byte) error {
	wrong := fmt.Errorf("%q is no duration: a number and a unit (ms, s, m, h, d) are needed, as in 10s, 1h30m or 7d", text)
	rest := strings.TrimSpace(string(text))
	var days int64
	if digits, after, found := strings.Cut(rest, "d"); found {
		n, err := strconv.ParseInt(digits, 10, 64)
		if err != nil || n < 0 {
			return wrong
		}
		if n > int64(math.MaxInt64/day) {
			return fmt.Errorf("%q is longer than 292 years, the longest duration there is", text)
		}
		if days, rest = n, after; rest == "" {
			rest = "0"
		}
	}
	span, err := time.ParseDuration(rest)
	if err != nil || span < 0 || strings.HasPrefix(rest, "+") {
		return wrong
	}
	if span > math.MaxInt64-time.Duration(days)*day {
		return fmt.Errorf("%q is longer than 292 years, the longest duration there is", text)
	}
	*d = Duration(time.Duration(days)*day + span)
	return nil
}

// Std is the duration as package time has it.
func (d Duration) Std() time.Duration { return time.Duration(d) }

// String is the duration as UnmarshalText takes it, without parts that are zero.
func (d Duration) String() string {
	if d == 0 {
		return "0"
	}
	span := time.Duration(d)
	if span%day == 0 {
		return strconv.FormatInt(int64(span/day), 10) + "d"
	}
	s := span.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// MarshalText is String.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// Mode is the mode of a file: permission bits alone. In the configuration it is octal: "0660".
type Mode fs.FileMode

// UnmarshalText reads octal digits.
func (m *Mode) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(strings.TrimPrefix(string(text), "0o"), 8, 32)
	if err != nil || n > 0o777 {
		return errors.New(strconv.Quote(string(text)) + ` is no mode: octal digits are needed, as in "0660"`)
	}
	*m = Mode(n)
	return nil
}

// String is the mode in octal.
func (m Mode) String() string { return fmt.Sprintf("%04o", uint32(m)) }

// MarshalText is String.
func (m Mode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }
