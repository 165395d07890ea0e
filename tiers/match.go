package tiers

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// wildcards are the bytes that begin something other than a plain character in a pattern.
const wildcards = "*?["

// IsPattern says whether s has a wildcard, so that Match may accept more than s itself.
func IsPattern(s string) bool { return strings.ContainsAny(s, wildcards) }

// LiteralPrefix is the part of a pattern before its first wildcard: whatever matches begins with it.
func LiteralPrefix(pattern string) string {
	if i := strings.IndexAny(pattern, wildcards); i >= 0 {
		return pattern[:i]
	}
	return pattern
}

// Match says whether the whole of s matches a pattern as Python's fnmatch.fnmatchcase does: * is any
// number of characters, also of '/', ? is one character, [seq] one of seq and [!seq] one that is
// not. There is no escape character; [*] is a literal *. It takes time len(pattern)*len(s) at most.
func Match(pattern, s string) bool {
	// On a mismatch only the last * has to take one character more: what an earlier one could take
	// instead, the last one can take too.
	star, starS := "", ""
	for haveStar := false; ; {
		if strings.HasPrefix(pattern, "*") {
			pattern = pattern[1:]
			star, starS, haveStar = pattern, s, true
			continue
		}
		if pattern == "" && s == "" {
			return true
		}
		if pattern != "" && s != "" {
			c, n := decodeChar(s)
			if ok, rest := matchOne(pattern, c); ok {
				pattern, s = rest, s[n:]
				continue
			}
		}
		if !haveStar || starS == "" {
			return false
		}
		_, n := decodeChar(starS)
		starS = starS[n:]
		pattern, s = star, starS
	}
}

// matchOne matches a character against the first element of a pattern, which is not a *, and gives
// the rest of the pattern.
func matchOne(pattern string, c rune) (bool, string) {
	switch pattern[0] {
	case '?':
		return true, pattern[1:]
	case '[':
		if end := setEnd(pattern); end > 0 {
			return matchSet(pattern[1:end], c), pattern[end+1:]
		}
	}
	p, n := decodeChar(pattern)
	return p == c, pattern[n:]
}

// setEnd is the index of the ] that ends the set at the start of a pattern, or -1 where there is
// none and the [ is a plain character. A ] that comes first is a member of the set.
func setEnd(pattern string) int {
	i := 1
	if strings.HasPrefix(pattern[i:], "!") {
		i++
	}
	if strings.HasPrefix(pattern[i:], "]") {
		i++
	}
	n := strings.IndexByte(pattern[i:], ']')
	if n < 0 {
		return -1
	}
	return i + n
}

// matchSet follows fnmatch.translate step by step, as its treatment of hyphens and of ranges that
// run backwards is defined by nothing else.
func matchSet(set string, c rune) bool {
	chunks := setChunks(set)
	for k := len(chunks) - 1; k > 0; k-- {
		low, high := chunks[k-1], chunks[k]
		if low[len(low)-1] > high[0] {
			chunks[k-1] = slices.Concat(low[:len(low)-1], high[1:])
			chunks = slices.Delete(chunks, k, k+1)
		}
	}
	negated := len(chunks[0]) > 0 && chunks[0][0] == '!'
	if negated {
		chunks[0] = chunks[0][1:]
	}
	found := slices.Contains(chunks[0], c)
	for k := 1; k < len(chunks) && !found; k++ {
		if low := chunks[k-1]; len(low) > 0 {
			found = low[len(low)-1] <= c && c <= chunks[k][0]
		}
		found = found || slices.Contains(chunks[k], c)
	}
	return found != negated
}

// setChunks cuts a set at the hyphens that stand for a range: the last character of a chunk and the
// first of the next are its ends.
func setChunks(set string) [][]rune {
	chars := decodeAll(set)
	if !slices.Contains(chars, '-') {
		return [][]rune{chars}
	}
	var chunks [][]rune
	from, k := 0, 1
	if chars[0] == '!' {
		k = 2
	}
	for k < len(chars) {
		n := slices.Index(chars[k:], '-')
		if n < 0 {
			break
		}
		k += n
		chunks = append(chunks, chars[from:k])
		from = k + 1
		k += 3
	}
	if from < len(chars) {
		return append(chunks, chars[from:])
	}
	last := len(chunks) - 1
	chunks[last] = append(slices.Clone(chunks[last]), '-')
	return chunks
}

func decodeAll(s string) []rune {
	chars := make([]rune, 0, len(s))
	for s != "" {
		c, n := decodeChar(s)
		chars, s = append(chars, c), s[n:]
	}
	return chars
}

// decodeChar decodes the first character of s as Python sees it. A lone surrogate, written as
// Python's surrogatepass writes it, is one character; a byte that is no UTF-8 is one of its own,
// told from all others.
func decodeChar(s string) (rune, int) {
	c, n := utf8.DecodeRuneInString(s)
	if c != utf8.RuneError || n != 1 {
		return c, n
	}
	if len(s) >= 3 && s[0] == 0xED && s[1] >= 0xA0 && s[1] <= 0xBF && s[2]&0xC0 == 0x80 {
		return 0xD000 | rune(s[1]&0x3F)<<6 | rune(s[2]&0x3F), 3
	}
	return utf8.MaxRune + 1 + rune(s[0]), 1
}
