package job_test

import (
	"reflect"
	"time"

	"pgregory.net/rapid"

	"saltern/job"
)

// The generators draw from few values, so that facts often agree in some fields and differ in
// others: that is where a merge rule that is no total order shows.

const jid = job.JID("20260801120000000000")

func genVersion() *rapid.Generator[job.Version] {
	return rapid.SampledFrom([]job.Version{0, 1, 2, 1 << 40, job.MaxVersion})
}

func genKeep() *rapid.Generator[job.Keep] {
	return rapid.SampledFrom([]job.Keep{job.KeepUnset, job.KeepForever, 1, 86400})
}

func genWord() *rapid.Generator[string] {
	return rapid.SampledFrom([]string{"", "a", "b", "日本", "a/b:c.d", "\x00", "\xed\xa0\x80"})
}

func genBytes() *rapid.Generator[[]byte] {
	return rapid.SampledFrom([][]byte{{}, {0x80}, {0xc3}, {0x81, 0xa1, 0x61, 0x01}, make([]byte, 600)})
}

func genPtr[T any](g *rapid.Generator[T]) *rapid.Generator[*T] {
	return rapid.Ptr(g, true)
}

func genMinions() *rapid.Generator[[]job.Minion] {
	id := rapid.Map(genWord(), func(s string) job.Minion { return job.Minion(s) })
	return rapid.Map(rapid.SliceOfN(id, 0, 4), func(ids []job.Minion) []job.Minion {
		return append([]job.Minion{}, ids...)
	})
}

func genLoad() *rapid.Generator[job.Load] {
	return rapid.Custom(func(t *rapid.T) job.Load {
		return job.Load{
			JID: jid, Version: genVersion().Draw(t, "version"),
			Rank: rapid.SampledFrom([]job.Rank{job.RankReturn, job.RankLoad, job.RankPublish}).Draw(t, "rank"),
			Fun:  genWord().Draw(t, "fun"), Target: genWord().Draw(t, "tgt"),
			TargetType: genWord().Draw(t, "tgt_type"), User: genWord().Draw(t, "user"),
			Master: genWord().Draw(t, "master"), Keep: genKeep().Draw(t, "keep"),
			Surrogates: rapid.Bool().Draw(t, "surrogates"), Payload: genBytes().Draw(t, "payload"),
		}
	})
}

func genMinionsFact() *rapid.Generator[job.Minions] {
	return rapid.Custom(func(t *rapid.T) job.Minions {
		return job.Minions{
			JID: jid, Version: genVersion().Draw(t, "version"), IDs: genMinions().Draw(t, "ids"),
			Syndic: genWord().Draw(t, "syndic"), Keep: genKeep().Draw(t, "keep"),
		}
	})
}

func genReturn() *rapid.Generator[job.Return] {
	return rapid.Custom(func(t *rapid.T) job.Return {
		return job.Return{
			JID: jid, Minion: "m", Version: genVersion().Draw(t, "version"),
			Fun: genWord().Draw(t, "fun"), Master: genWord().Draw(t, "master"), Keep: genKeep().Draw(t, "keep"),
			RetCode: genPtr(rapid.Int64Range(-1, 1)).Draw(t, "retcode"),
			Success: genPtr(rapid.Bool()).Draw(t, "success"),
			Failed:  rapid.Bool().Draw(t, "failed"), Surrogates: rapid.Bool().Draw(t, "surrogates"),
			Ret: genBytes().Draw(t, "ret"), Rest: genBytes().Draw(t, "rest"), Times: genBytes().Draw(t, "times"),
		}
	})
}

func genEndTime() *rapid.Generator[job.EndTime] {
	return rapid.Custom(func(t *rapid.T) job.EndTime {
		return job.EndTime{
			JID: jid, Version: genVersion().Draw(t, "version"),
			Text: genWord().Draw(t, "text"), Keep: genKeep().Draw(t, "keep"),
		}
	})
}

func genNoCache() *rapid.Generator[job.NoCache] {
	return rapid.Custom(func(t *rapid.T) job.NoCache {
		return job.NoCache{
			JID: jid, Version: genVersion().Draw(t, "version"), Keep: genKeep().Draw(t, "keep"),
		}
	})
}

// genEvent draws events of one id and master: that is the key by which stores merge.
func genEvent() *rapid.Generator[job.Event] {
	return rapid.Custom(func(t *rapid.T) job.Event {
		return job.Event{
			ID: job.EventID{7: 1, 15: 2}, Master: "master", Version: genVersion().Draw(t, "version"),
			Tag: genWord().Draw(t, "tag"), Surrogates: rapid.Bool().Draw(t, "surrogates"),
			Data: genBytes().Draw(t, "data"),
		}
	})
}

func genTime() *rapid.Generator[time.Time] {
	return rapid.Map(rapid.Int64Range(0, 2), func(s int64) time.Time { return time.Unix(s, 0).UTC() })
}

func genLastFunction() *rapid.Generator[job.LastFunction] {
	return rapid.Custom(func(t *rapid.T) job.LastFunction {
		return job.LastFunction{
			Minion: "m", Fun: genWord().Draw(t, "fun"), JID: job.JID(genWord().Draw(t, "jid")),
			JobTime: genTime().Draw(t, "job time"), Version: genVersion().Draw(t, "version"),
			Failed: rapid.Bool().Draw(t, "failed"), Seen: genTime().Draw(t, "seen"),
		}
	})
}

func genFact() *rapid.Generator[job.Fact] {
	return rapid.OneOf(
		asFact(genLoad()), asFact(genMinionsFact()), asFact(genReturn()), asFact(genEndTime()),
		asFact(genNoCache()), asFact(genEvent()),
	)
}

func asFact[T job.Fact](g *rapid.Generator[T]) *rapid.Generator[job.Fact] {
	return rapid.Map(g, func(f T) job.Fact { return f })
}

// variants gives b, and for each field of a the value that is a but for that field, taken from b:
// values drawn apart hardly ever differ in one field alone.
func variants[T any](a, b T) []T {
	all := []T{b}
	for i := range reflect.TypeFor[T]().NumField() {
		v := a
		reflect.ValueOf(&v).Elem().Field(i).Set(reflect.ValueOf(b).Field(i))
		all = append(all, v)
	}
	return all
}
