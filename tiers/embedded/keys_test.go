package embedded

import "testing"

func TestEscapedStringsKeepTheirOrder(t *testing.T) {
	sorted := []string{"", "\x00", "\x00\x00", "\x00\x01", "\x00\xff", "\x01", "a", "a\x00", "a\x00b", "a\x01", "ab", "\xff"}
	var last []byte
	for _, s := range sorted {
		key := appendEscaped(nil, s)
		if string(key) <= string(last) {
			t.Errorf("key of %q does not sort behind the one before", s)
		}
		if got, rest := cutEscaped(append(key, "rest"...)); got != s || string(rest) != "rest" {
			t.Errorf("cutEscaped gives %q, %q; want %q and the rest", got, rest, s)
		}
		last = key
	}
}
