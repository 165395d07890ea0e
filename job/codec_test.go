package job_test

import (
	"bytes"
	"errors"
	"reflect"
	"testing"

	"github.com/tinylib/msgp/msgp"
	"pgregory.net/rapid"

	"saltern/job"
)

func TestCodecRoundTrip(t *testing.T) {
	code, ok := int64(-3), true
	big := make([]byte, 100_000)
	facts := []job.Fact{
		job.Load{JID: "j", Version: 7, Rank: job.RankPublish, Fun: "f", Target: "t", TargetType: "glob",
			User: "u", Master: "m", Keep: 86400, Surrogates: true, Payload: big},
		job.Minions{JID: "j", Version: 8, IDs: []job.Minion{"a", "日本"}, Syndic: "s", Keep: job.KeepUnset},
		job.Return{JID: "j", Minion: "a", Version: 9, Fun: "f", Master: "m", Keep: 0, RetCode: &code,
			Success: &ok, Failed: true, Ret: []byte{0xc3}, Rest: big, Times: []byte{0x80}},
		job.Return{JID: "j", Minion: "a", Version: 9, Ret: []byte{0xc3}, Rest: []byte{0x80}, Times: []byte{0x80}},
		job.EndTime{JID: "j", Version: 10, Text: "2026, Dec 01 03:09:07.888491", Keep: 1},
		job.NoCache{JID: "j", Version: 11},
		job.Event{ID: job.EventID{1, 2, 15: 3}, Version: 12, Master: "m", Tag: "salt/x", Data: []byte{0x80}},
	}
	for _, f := range facts {
		got, err := job.Decode(job.Encode(f))
		if err != nil {
			t.Errorf("Decode(Encode(%T)): %v", f, err)
			continue
		}
		if !reflect.DeepEqual(got, f) {
			t.Errorf("Decode(Encode(f)) = %+v; want %+v", got, f)
		}
	}
}

func TestCodecOfAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := genFact().Draw(t, "fact")
		got, err := job.Decode(job.Encode(f))
		if err != nil {
			t.Fatal(err)
		}
		same(t, "read back", got, f)
	})
}

// reframe gives the fact with another number of fields in its array and bytes after it: what
// another version of Saltern would have written.
func reframe(t rapid.TB, f job.Fact, change int, after []byte) []byte {
	v, body, err := job.Open(job.Encode(f))
	if err != nil {
		t.Fatal(err)
	}
	n, fields, err := msgp.ReadArrayHeaderBytes(body)
	if err != nil {
		t.Fatal(err)
	}
	b := msgp.AppendArrayHeader(nil, uint32(int(n)+change))
	return job.Seal(v, append(append(b, fields...), after...))
}

// TestCodecReadsNewerFacts: fields that this version does not know are ignored, whatever is in them.
func TestCodecReadsNewerFacts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := genFact().Draw(t, "fact")
		extra := msgp.AppendMapHeader(msgp.AppendString(msgp.AppendNil(nil), "new"), 1)
		extra = msgp.AppendFloat64(msgp.AppendInt(extra, 1), 2.5)
		got, err := job.Decode(reframe(t, f, 3, extra))
		if err != nil {
			t.Fatal(err)
		}
		same(t, "read back", got, f)
	})
}

// TestCodecReadsOlderFacts: fields that an older version did not write have their zero value.
func TestCodecReadsOlderFacts(t *testing.T) {
	code := int64(3)
	for _, c := range []struct{ f, want job.Fact }{
		{job.Load{JID: "j", Version: 1, Rank: 3, Fun: "f", Payload: []byte{0x80}},
			job.Load{JID: "j", Version: 1, Rank: 3, Fun: "f"}},
		{job.EndTime{JID: "j", Version: 1, Text: "t", Keep: 7}, job.EndTime{JID: "j", Version: 1, Text: "t"}},
		{job.Return{JID: "j", Minion: "m", RetCode: &code, Ret: []byte{1}, Rest: []byte{1}, Times: []byte{1}},
			job.Return{JID: "j", Minion: "m", RetCode: &code, Ret: []byte{1}, Rest: []byte{1}}},
	} {
		got, err := job.Decode(reframe(t, c.f, -1, nil))
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%T without its last field: %+v, %v; want %+v", c.f, got, err, c.want)
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	array := func(n uint32, fields ...byte) []byte {
		return job.Seal(1, append(msgp.AppendArrayHeader(nil, n), fields...))
	}
	hugeList := msgp.AppendArrayHeader(msgp.AppendString(msgp.AppendInt64(nil, 2), "j"), 1<<32-1)
	for name, b := range map[string][]byte{
		"nothing":                nil,
		"no array":               job.Seal(1, []byte{0xc0}),
		"no body":                job.Seal(1, nil),
		"no kind":                array(0),
		"kind 0":                 array(1, 0),
		"newer kind":             array(1, 77),
		"cut fields":             array(11, 1, 0xa1, 'j'),
		"other type":             array(2, 1, 7),
		"short event id":         array(2, 6, 0xc4, 1, 0),
		"huge string":            array(2, 1, 0xdb, 0xff, 0xff, 0xff, 0xff),
		"huge payload":           array(2, 6, 0xc6, 0xff, 0xff, 0xff, 0xff),
		"huge list":              array(5, hugeList...),
		"huge list of empty ids": array(5, append(hugeList, bytes.Repeat([]byte{0xa0}, 100)...)...),
	} {
		var err error
		n := allocated(func() { _, err = job.Decode(b) })
		if !errors.Is(err, job.ErrCorrupt) {
			t.Errorf("%s: %v; want ErrCorrupt", name, err)
		}
		if n > 1<<20 {
			t.Errorf("%s: %d bytes were allocated for %d", name, n, len(b))
		}
	}
}

// FuzzDecode takes the body of an envelope, so that the fuzzer need not find checksums.
func FuzzDecode(f *testing.F) {
	code, yes := int64(-3), true
	for _, fact := range []job.Fact{
		job.Load{JID: "j", Rank: job.RankPublish, Fun: "f", Target: "t", Payload: []byte{0x80}},
		job.Minions{JID: "j", IDs: []job.Minion{"a", "b"}, Syndic: "s"},
		job.Return{JID: "j", Minion: "m", RetCode: &code, Success: &yes, Ret: []byte{1}, Rest: []byte{0x80}},
		job.Return{JID: "j", Minion: "m"},
		job.EndTime{JID: "j", Text: "2026, Dec 01 03:09:07.888491"},
		job.NoCache{JID: "j", Keep: job.KeepUnset},
		job.Event{ID: job.EventID{1}, Tag: "salt/x", Data: []byte{0x80}},
	} {
		_, body, err := job.Open(job.Encode(fact))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(body)
	}
	f.Add(append([]byte{0x95, 2, 0xa1, 'j', 0xdd}, 0xff, 0xff, 0xff, 0xff))
	f.Fuzz(func(t *testing.T, body []byte) {
		fact, err := job.Decode(job.Seal(9, body))
		if err != nil {
			if !errors.Is(err, job.ErrCorrupt) {
				t.Fatalf("error %v; want ErrCorrupt", err)
			}
			return
		}
		again, err := job.Decode(job.Encode(fact))
		if err != nil {
			t.Fatalf("what was decoded does not encode: %v", err)
		}
		// An absent list or payload is written as an empty one.
		if again.Size() != fact.Size() || again.Job() != fact.Job() {
			t.Fatalf("%+v became %+v", fact, again)
		}
	})
}

func BenchmarkEncodeReturn(b *testing.B) {
	r := job.Return{JID: jid, Minion: "m", Ret: noise(300), Rest: noise(100), Times: noise(30)}
	b.ReportAllocs()
	for b.Loop() {
		job.Encode(r)
	}
}

func BenchmarkDecodeReturn(b *testing.B) {
	r := job.Encode(job.Return{JID: jid, Minion: "m", Ret: noise(300), Rest: noise(100), Times: noise(30)})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := job.Decode(r); err != nil {
			b.Fatal(err)
		}
	}
}
