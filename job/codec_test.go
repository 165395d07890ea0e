package job_test

import (
	"reflect"
	"testing"

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
