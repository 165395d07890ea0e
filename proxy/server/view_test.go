package server

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/tinylib/msgp/msgp"
	"pgregory.net/rapid"
)

func viewOf(packed []byte) string {
	var out bytes.Buffer
	w := bufio.NewWriter(&out)
	newJSONWriter(w).view(packed)
	_ = w.Flush()
	return out.String()
}

// pack writes what salt.payload.dumps would for a few Go types; pair lists are maps in that order.
type pairs [][2]any
type ext struct {
	kind int8
	data string
}

func pack(v any) []byte {
	switch v := v.(type) {
	case pairs:
		b := msgp.AppendMapHeader(nil, uint32(len(v)))
		for _, p := range v {
			b = append(append(b, pack(p[0])...), pack(p[1])...)
		}
		return b
	case []any:
		b := msgp.AppendArrayHeader(nil, uint32(len(v)))
		for _, e := range v {
			b = append(b, pack(e)...)
		}
		return b
	case ext:
		b, err := msgp.AppendExtension(nil, &msgp.RawExtension{Type: v.kind, Data: []byte(v.data)})
		if err != nil {
			panic(err)
		}
		return b
	default:
		b, err := msgp.AppendIntf(nil, v)
		if err != nil {
			panic(err)
		}
		return b
	}
}

func TestViewShowsEveryValueOfSalt(t *testing.T) {
	for name, c := range map[string]struct {
		in   any
		want string
	}{
		// The rows of table R1 in the case list.
		"int keys":             {pairs{{1, "a"}, {2, pairs{{3, "b"}}}}, `{"$map":[[1,"a"],[2,{"$map":[[3,"b"]]}]]}`},
		"tuple":                {[]any{1, 2}, `[1,2]`},
		"bytes":                {pairs{{"k", []byte("\x82\x01\xff")}}, `{"k":{"$base64":"ggH/"}}`},
		"bytes as a key":       {pairs{{[]byte("\x82"), "v"}}, `{"$map":[[{"$base64":"gg=="},"v"]]}`},
		"datetime":             {pairs{{"t", ext{78, "20240102T03:04:05.000678"}}}, `{"t":{"$datetime":"2024-01-02T03:04:05.000678"}}`},
		"date":                 {pairs{{"t", ext{78, "20240102T00:00:00.000000"}}}, `{"t":{"$datetime":"2024-01-02T00:00:00.000000"}}`},
		"set":                  {pairs{{"s", []any{"a", "b"}}}, `{"s":["a","b"]}`},
		"None as a key":        {pairs{{nil, "v"}}, `{"$map":[[null,"v"]]}`},
		"True as a key":        {pairs{{true, "v"}}, `{"$map":[[true,"v"]]}`},
		"a float as a key":     {pairs{{1.5, "v"}}, `{"$map":[[1.5,"v"]]}`},
		"nan and inf":          {pairs{{"n", math.NaN()}, {"i", math.Inf(1)}, {"j", math.Inf(-1)}}, `{"n":{"$float":"nan"},"i":{"$float":"inf"},"j":{"$float":"-inf"}}`},
		"2**63-1":              {int64(math.MaxInt64), `9223372036854775807`},
		"2**64-1":              {uint64(math.MaxUint64), `18446744073709551615`},
		"2**70 as Salt has it": {"1180591620717411303424", `"1180591620717411303424"`},
		"a lone surrogate":     {pairs{{"s", "caf\xed\xb3\xa9"}}, `{"s":"caf\udce9"}`},
		"NUL":                  {pairs{{"s", "a\x00b"}}, `{"s":"a\u0000b"}`},
		"apostrophes":          {pairs{{"s", "it's 'ok'"}}, `{"s":"it's 'ok'"}`},
		"None":                 {nil, `null`},
		"False":                {false, `false`},
		"empty text":           {"", `""`},
		"empty map":            {pairs{}, `{}`},
		"empty list":           {[]any{}, `[]`},
		"the order of keys":    {pairs{{"b", 1}, {"a", 2}}, `{"b":1,"a":2}`},
		// The rows of table R4, and of case S33.
		"1.0":                    {1.0, `1.0`},
		"-0.0":                   {math.Copysign(0, -1), `-0.0`},
		"2**53+1":                {int64(9007199254740993), `9007199254740993`},
		"-2**63":                 {int64(math.MinInt64), `-9223372036854775808`},
		"a byte that is no text": {"caf\xe9", `{"$base64":"Y2Fm6Q==","$type":"str"}`},
		"HTML and U+2028":        {"<a>&\u2028", "\"<a>&\u2028\""},
		"a key twice":            {pairs{{"a", 1}, {"a", 2}}, `{"$map":[["a",1],["a",2]]}`},
		"1e308":                  {1e308, `1e+308`},
		"0.1":                    {0.1, `0.1`},
		"1e16":                   {1e16, `1e+16`},
		"123456789.5":            {123456789.5, `123456789.5`},
		"5e-324":                 {5e-324, `5e-324`},
		"a float of 32 bits":     {float32(0.1), `0.10000000149011612`},
		// Markers cannot be forged.
		"a key like a marker":         {pairs{{"$base64", "x"}}, `{"$$base64":"x"}`},
		"a key like an escaped one":   {pairs{{"$$x", 1}, {"$x", 2}}, `{"$$$x":1,"$$x":2}`},
		"a dollar within a key":       {pairs{{"a$", 1}}, `{"a$":1}`},
		"odd keys keep their dollars": {pairs{{"$x", 1}, {2, 1}}, `{"$map":[["$x",1],[2,1]]}`},
		// Other extensions, and datetimes that are none.
		"another extension":       {ext{5, "\x82\xff"}, `{"$ext":[5,"gv8="]}`},
		"an extension below zero": {ext{-1, "\x00\x00\x00\x01"}, `{"$ext":[-1,"AAAAAQ=="]}`},
		"a month 13":              {ext{78, "20241302T03:04:05.000678"}, `{"$ext":[78,"` + base64.StdEncoding.EncodeToString([]byte("20241302T03:04:05.000678")) + `"]}`},
		"a datetime cut short":    {ext{78, "2024"}, `{"$ext":[78,"MjAyNA=="]}`},
		// Text.
		"escapes":                      {"\"\\\n\r\t\x1f\x7f", "\"\\\"\\\\\\n\\r\\t\\u001f\x7f\""},
		"Korean, which begins with ed": {"\ud7a3힣", `"힣힣"`},
		"emoji":                        {"🧂", `"🧂"`},
		"the replacement character":    {"\ufffd", `"` + "\ufffd" + `"`},
		"a surrogate in a key":         {pairs{{"\xed\xb3\xa9", 1}}, `{"\udce9":1}`},
		"a key that is no text":        {pairs{{"\xe9", 1}}, `{"$map":[[{"$base64":"6Q==","$type":"str"},1]]}`},
		// As escapes these two would be read as one character.
		"a surrogate pair":            {"\xed\xa0\xbd\xed\xb8\x80", `{"$base64":"7aC97biA","$type":"str"}`},
		"a pair the other way around": {"\xed\xb8\x80\xed\xa0\xbd", `"\ude00\ud83d"`},
		"a surrogate cut short":       {"\xed\xb3", `{"$base64":"7bM=","$type":"str"}`},
	} {
		t.Run(name, func(t *testing.T) {
			got := viewOf(pack(c.in))
			if got != c.want {
				t.Errorf("view = %s\nwant   %s", got, c.want)
			}
			if !json.Valid([]byte(got)) {
				t.Error("the view is no JSON")
			}
		})
	}
}

// 1.0 and 5e+15 must not become whole numbers in a reader that tells them apart.
func TestViewFloatsStayFloatsAndKeepTheirValue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := rapid.Float64().Draw(t, "f")
		got := viewOf(msgp.AppendFloat64(nil, f))
		if !strings.ContainsAny(got, ".e") {
			t.Fatalf("%v is shown as the whole number %s", f, got)
		}
		var back float64
		if err := json.Unmarshal([]byte(got), &back); err != nil || back != f {
			t.Fatalf("%v is shown as %s, read as %v: %v", f, got, back, err)
		}
	})
}

func TestViewIsAlwaysJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		packed := genValue(t, 3)
		if got := viewOf(packed); !json.Valid([]byte(got)) {
			t.Fatalf("the view of %x is no JSON: %s", packed, got)
		}
	})
}

func TestViewOfManyKeys(t *testing.T) {
	var m pairs
	for i := range 100 {
		m = append(m, [2]any{fmt.Sprint("k", i), i})
	}
	if got := viewOf(pack(m)); strings.Contains(got, "$map") {
		t.Errorf("different keys are taken for equal: %s", got)
	}
	m[99][0] = "k3"
	if got := viewOf(pack(m)); !strings.HasPrefix(got, `{"$map":[["k0",0],`) {
		t.Errorf("a key that is there twice is not seen: %s", got)
	}
}

// A map is judged by its own keys, whatever the maps before, after and in it are.
func TestViewTellsNestedMapsApart(t *testing.T) {
	in := []any{
		pairs{{"a", pairs{{"a", pairs{}}, {"b", pairs{{1, 2}}}}}, {"b", pairs{{"a", 1}}}},
		pairs{{7, pairs{{"x", 1}}}},
		pairs{{pairs{{"in", "a key"}}, pairs{}}},
	}
	want := `[{"a":{"a":{},"b":{"$map":[[1,2]]}},"b":{"a":1}},{"$map":[[7,{"x":1}]]},{"$map":[[{"in":"a key"},{}]]}]`
	if got := viewOf(pack(in)); got != want {
		t.Errorf("view = %s\nwant   %s", got, want)
	}
}

func TestViewOfWhatIsTooDeepOrCorrupt(t *testing.T) {
	deep := append(bytes.Repeat([]byte{0x81, 0xa1, 'k'}, viewDepth+5), 0x01)
	inner := base64.StdEncoding.EncodeToString(deep[3*viewDepth:])
	want := strings.Repeat(`{"k":`, viewDepth) + `{"$msgpack":"` + inner + `"}` + strings.Repeat("}", viewDepth)
	if got := viewOf(deep); got != want {
		t.Errorf("a value of %d levels is shown as %s", viewDepth+5, got)
	}
	for _, corrupt := range [][]byte{nil, {0xc1}, {0x92, 0x01}, {0x01, 0x02}, {0xd9, 0x05, 'a'}, {0xdf, 0xff, 0xff, 0xff, 0xff}, {0xc7, 0x05}} {
		want := `{"$msgpack":"` + base64.StdEncoding.EncodeToString(corrupt) + `"}`
		if got := viewOf(corrupt); got != want {
			t.Errorf("corrupt %x is shown as %s; want %s", corrupt, got, want)
		}
	}
}

func FuzzView(f *testing.F) {
	f.Add(pack(pairs{{"$a", 1}, {"b", []byte{1}}}))
	f.Add(pack(pairs{{1, "\xed\xb3\xa9"}, {"x", "\xff"}}))
	f.Add(pack([]any{ext{78, "20240102T03:04:05.000678"}, math.NaN()}))
	f.Add(bytes.Repeat([]byte{0x81, 0xc0}, 300))
	f.Fuzz(func(t *testing.T, packed []byte) {
		if got := viewOf(packed); !json.Valid([]byte(got)) {
			t.Fatalf("the view of %x is no JSON: %s", packed, got)
		}
	})
}

// The time has to grow with the size alone, not with the size times the depth.
func BenchmarkViewNested(b *testing.B) {
	v := pack(bytes.Repeat([]byte("x"), 1<<20))
	for range 64 {
		v = append(append(msgp.AppendMapHeader(nil, 1), pack("k")...), v...)
	}
	b.SetBytes(int64(len(v)))
	for b.Loop() {
		w := bufio.NewWriter(io.Discard)
		newJSONWriter(w).view(v)
	}
}
