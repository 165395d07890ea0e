package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func TestHarmless(t *testing.T) {
	for in, want := range map[string]string{
		"plain":                 "plain",
		"grüße, 世界 ✓":           "grüße, 世界 ✓",
		"\x1b[31mred\x1b]0;t\a": `\x1b[31mred\x1b]0;t\a`,
		"two\nlines\tand\r":     `two\nlines\tand\r`,
		"\u009b31m":             `\u009b31m`, // the one-character form of ESC [
		"\u202egnirts":          `\u202egnirts`,
		"a\u2028b":              `a\u2028b`,
		"\xff\xfe":              `\xff\xfe`,
		"nul\x00del\x7f":        `nul\x00del\x7f`,
		"":                      "",
	} {
		if got := harmless(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
	if got, want := harmlessLines("a\r\n\tb\x1bc\n"), "a\n\tb\\x1bc\n"; got != want {
		t.Errorf("lines became %q, want %q", got, want)
	}
}

func TestTableFitsTheTerminal(t *testing.T) {
	tab := table{columns: []column{{title: "ID"}, {title: "NAME", least: 6}, {title: "N", right: true}}}
	tab.add("1", "a rather long name", "5")
	tab.add("22", "世界世界世界世界世界", "123")
	tab.add("3", "", "7")
	for limit, want := range map[int]string{
		0: `
ID  NAME                    N
1   a rather long name      5
22  世界世界世界世界世界  123
3   -                       7
`,
		20: `
ID  NAME           N
1   a rather l…    5
22  世界世界世…  123
3   -              7
`,
		5: `
ID  NAME      N
1   a rat…    5
22  世界…   123
3   -         7
`,
	} {
		var b bytes.Buffer
		if err := tab.write(&b, limit); err != nil {
			t.Fatal(err)
		}
		if got := "\n" + b.String(); got != want {
			t.Errorf("at %d:%s\nwant:%s", limit, got, want)
		}
	}
}

func TestMoment(t *testing.T) {
	now := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	for in, want := range map[string]string{
		"90s":                       "2026-12-01T11:58:30Z",
		"2h":                        "2026-12-01T10:00:00Z",
		"7d":                        "2026-11-24T12:00:00Z",
		"1d12h":                     "2026-11-30T00:00:00Z",
		"0":                         "2026-12-01T12:00:00Z",
		"2026-11-30":                "2026-11-30T00:00:00Z",
		"2026-11-30 10:30":          "2026-11-30T10:30:00Z",
		"2026-11-30T10:30:05":       "2026-11-30T10:30:05Z",
		"2026-11-30T10:30:05+02:00": "2026-11-30T10:30:05+02:00",
		"2026-11-30T10:30:05.25Z":   "2026-11-30T10:30:05.25Z",
	} {
		m := moment{now: func() time.Time { return now }}
		if err := m.Set(in); err != nil || m.String() != want {
			t.Errorf("%q is %v (%v), want %s", in, m.String(), err, want)
		}
	}
	for _, in := range []string{"", "2", "-2h", "-1d", "xd", "d", "1d-1h", "2026-13-01", "99999999d", "tomorrow"} {
		m := moment{now: time.Now}
		if err := m.Set(in); err == nil {
			t.Errorf("%q is taken as %v", in, m.String())
		}
	}
}

func TestResult(t *testing.T) {
	for in, want := range map[string]string{
		`true`:               `true`,
		`"text\nof two"`:     "text\nof two",
		`"\u001b[1m"`:        `\x1b[1m`,
		`{"a":[1,2.50]}`:     "{\n  \"a\": [\n    1,\n    2.50\n  ]\n}",
		`{"a_|-b_|-c":{}}`:   "{\n  \"a_|-b_|-c\": {}\n}", // no state: three parts
		`["a state failed"]`: "[\n  \"a state failed\"\n]",
		`{"m_|-i_|-n_|-f":{"result":null,"changes":{"x":1}}}`: "1 states: 0 succeeded, 1 changed something, 0 failed, 1 would change something\n",
	} {
		if got := result([]byte(in)); got != want {
			t.Errorf("%s is shown as %q, want %q", in, got, want)
		}
	}
}

func TestMergeOptionsAsSalt(t *testing.T) {
	dst := map[string]any{"a": 1, "l": []any{"x"}, "d": map[string]any{"k": 1, "l": []any{1}}}
	mergeOptions(dst, map[string]any{"a": 2, "l": []any{"x", "y"}, "d": map[string]any{"l": []any{2}}, "n": nil})
	var b bytes.Buffer
	if err := writeJSON(&b, dst); err != nil {
		t.Fatal(err)
	}
	const want = `{"a":2,"d":{"k":1,"l":[1,2]},"l":["x","y"],"n":null}`
	if got := strings.NewReplacer(" ", "", "\n", "").Replace(b.String()); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
