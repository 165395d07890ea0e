package tiers_test

import (
	"strings"
	"testing"

	"saltern/tiers"
)

// The wanted values are those of fnmatch.fnmatchcase of Python 3.11; 20,000 random patterns agreed.
func TestMatch(t *testing.T) {
	tests := []struct {
		pattern, s string
		want       bool
	}{
		// Plain characters match themselves, the whole and in their case.
		{"", "", true},
		{"", "a", false},
		{"test.ping", "test.ping", true},
		{"test.ping", "test_ping", false},
		{"test.ping", "test.pings", false},
		{"Test", "test", false},
		{`a\*`, `a\b`, true},
		// * is any number of characters, of '/' too.
		{"*", "", true},
		{"*", "a/b\n", true},
		{"salt/job/*", "salt/job/2024/ret/m", true},
		{"salt/*/ret/*", "salt/job/2024/ret/m/n", true},
		{"*a*b", "aab", true},
		{"*a*b", "aba", false},
		{"a**", "a", true},
		{"*.sls", "x.slsx", false},
		// ? is one character, not one byte.
		{"?", "", false},
		{"?", "日", true},
		{"??", "日", false},
		{"?", "\xed\xb3\xbf", true}, // a lone surrogate, by surrogatepass
		{"??", "\xed\xb3\xbf", false},
		// Sets.
		{"web[0-9]", "web7", true},
		{"web[0-9]", "webx", false},
		{"[!0-9]", "x", true},
		{"[!0-9]", "7", false},
		{"[!0-9]", "", false},
		{"[α-ω]", "λ", true},
		{"[*]", "*", true},
		{"[*]", "a", false},
		{"[]]", "]", true},
		{"[]a]", "a", true},
		{"[!]]", "]", false},
		{"[!]]", "x", true},
		{"[^a]", "a", true},
		{"[^a]", "^", true},
		{"[a-]", "-", true},
		{"[-a]", "-", true},
		{"[a-c-e]", "d", false},
		{"[a-c-e]", "-", true},
		{"[--/]", ".", true},
		{`[\]`, `\`, true},
		{"[!-a]", "-", false},
		// Ranges that run backwards are empty.
		{"[b-a]", "a", false},
		{"[!b-a]", "a", true},
		{"[c-b-a]", "-", true},
		// A set without an end is plain characters.
		{"[a", "[a", true},
		{"[a", "a", false},
		{"[!", "[!", true},
		{"[]", "[]", true},
	}
	for _, tt := range tests {
		if got := tiers.Match(tt.pattern, tt.s); got != tt.want {
			t.Errorf("Match(%q, %q) = %v; want %v", tt.pattern, tt.s, got, tt.want)
		}
	}
}

// A matcher that tries every way to share s among the stars would not come back from this.
func TestMatchManyStars(t *testing.T) {
	s := strings.Repeat("a", 20_000)
	if pattern := strings.Repeat("a*", 200) + "b"; tiers.Match(pattern, s) {
		t.Errorf("Match(%.8q..., %.8q...) = true; want false", pattern, s)
	}
}

func TestIsPattern(t *testing.T) {
	for s, want := range map[string]bool{
		"": false, "test.ping": false, "a]b!c": false, `a\b`: false,
		"*": true, "a?": true, "[": true, "web[0-9]": true,
	} {
		if got := tiers.IsPattern(s); got != want {
			t.Errorf("IsPattern(%q) = %v; want %v", s, got, want)
		}
	}
}

func TestLiteralPrefix(t *testing.T) {
	for pattern, want := range map[string]string{
		"": "", "salt/auth": "salt/auth", "salt/job/*": "salt/job/", "*": "", "a[b]c": "a", "x?": "x",
	} {
		if got := tiers.LiteralPrefix(pattern); got != want {
			t.Errorf("LiteralPrefix(%q) = %q; want %q", pattern, got, want)
		}
	}
}

func FuzzMatch(f *testing.F) {
	f.Add("[!a-c]*?", "dé")
	f.Add("[\xff-\xed\xa0\x80]", "\xed\xa0\x80")
	f.Fuzz(func(t *testing.T, pattern, s string) {
		if tiers.Match(pattern, s) && !strings.HasPrefix(s, tiers.LiteralPrefix(pattern)) {
			t.Errorf("Match(%q, %q) = true without its literal prefix", pattern, s)
		}
	})
}
