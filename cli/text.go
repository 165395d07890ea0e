package cli

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/width"
)

// harmless makes one line of text from outside safe to print: minions choose what is in it, and a
// terminal obeys escape sequences. Whatever is not printable, line ends and changes of the writing
// direction among it, is shown as an escape of Go (\n, \x1b, \u202e).
func harmless(s string) string { return escape(s, false) }

// harmlessLines is harmless for text of several lines: line ends and tabs stay.
func harmlessLines(s string) string { return escape(strings.ReplaceAll(s, "\r\n", "\n"), true) }

func escape(s string, lines bool) string {
	if isPlain(s) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			b.WriteString(`\x` + strconv.FormatUint(uint64(s[i])|0x100, 16)[1:])
		case lines && (r == '\n' || r == '\t'), strconv.IsPrint(r):
			b.WriteRune(r)
		default:
			quoted := strconv.QuoteRune(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		}
		i += size
	}
	return b.String()
}

// isPlain says whether s is printable ASCII alone, as nearly all is.
func isPlain(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// columns is how many columns of a terminal s takes.
func columns(s string) int {
	n := 0
	for _, r := range s {
		n += runeColumns(r)
	}
	return n
}

func runeColumns(r rune) int {
	if r < 0x7f {
		return 1
	}
	if unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf) {
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	default:
		return 1
	}
}

// shorten cuts s to at most n columns and marks the cut with an ellipsis.
func shorten(s string, n int) string {
	if columns(s) <= n {
		return s
	}
	used := 0
	for i, r := range s {
		if used += runeColumns(r); used > n-1 {
			return s[:i] + "…"
		}
	}
	return s
}
