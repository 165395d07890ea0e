package job_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"saltern/job"
)

func TestJIDTime(t *testing.T) {
	want := time.Date(2024, 8, 1, 14, 27, 38, 891639000, time.UTC)
	for _, c := range []struct {
		jid job.JID
		ok  bool
	}{
		{"20240801142738891639", true},
		{"20240801142738891639_4711", true},
		{"20240801142738891639_ssh_1", true}, // only the first underscore counts
		{"20240801142738891639_", false},     // an empty suffix is not what Salt makes
		{"2024080114273889163", false},
		{"202408011427388916390", false},
		{"20240801142738891639x", false},
		{"2024080114273889163x", false},
		{"+0240801142738891639", false},
		{"20240230142738891639", false}, // no such day
		{"20241301142738891639", false},
		{"20240801242738891639", false},
		{"20240801142760891639", false}, // Salt makes no leap second
		{"２０２４０８０１１４２７３８", false},       // digits, but not ASCII
		{"req", false},
		{"_4711", false},
		{"", false},
		{"../../etc/passwd", false},
	} {
		got, ok := c.jid.Time()
		if ok != c.ok || ok && !got.Equal(want) {
			t.Errorf("JID(%q).Time() = %v, %v; want ok = %v", c.jid, got, ok, c.ok)
		}
	}
}

func TestNewJID(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := time.UnixMicro(rapid.Int64Range(0, 253402300799999999).Draw(t, "µs"))
		zone := time.FixedZone("", rapid.IntRange(-12*3600, 14*3600).Draw(t, "zone"))
		jid := job.NewJID(at.In(zone))
		got, ok := jid.Time()
		if len(jid) != 20 || !ok || !got.Equal(at) {
			t.Fatalf("NewJID(%v) = %q, whose time is %v, %v", at, jid, got, ok)
		}
	})
	if got, want := job.NewJID(noon.Add(1999*time.Nanosecond)), job.JID("20260801120000000001"); got != want {
		t.Errorf("NewJID = %q; want %q: nanoseconds are cut, not rounded into the future", got, want)
	}
}

func TestPlausibleTime(t *testing.T) {
	now := noon.Add(1234567 * time.Nanosecond)
	first := noon.Add(1234 * time.Microsecond)
	for _, c := range []struct {
		jid  job.JID
		want time.Time
	}{
		{"20260801110000000000", noon.Add(-time.Hour)},
		{"20260802110000000000_7", noon.Add(23 * time.Hour)}, // a master whose clock is wrong
		{"20260803120000000000", first},                      // made up, to stay on top of lists
		{"99991231235959999999", first},
		{"20091231235959999999", first},
		{"00000101000000000000", first},
		{"nightly", first},
		{"", first},
	} {
		if got := c.jid.PlausibleTime(now); !got.Equal(c.want) || got.Location() != time.UTC {
			t.Errorf("JID(%q).PlausibleTime = %v; want %v", c.jid, got, c.want)
		}
	}
}

// TestJIDsAreAnything: whatever a jid is, its time is a time of its own or the one given.
func TestJIDsAreAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		jid := job.JID(rapid.String().Draw(t, "jid"))
		if _, ok := jid.Time(); !ok && !jid.PlausibleTime(noon).Equal(noon) {
			t.Fatalf("JID(%q) has no time, and is not taken as of now", jid)
		}
	})
}
