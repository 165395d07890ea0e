package cli

import (
	"github.com/tinylib/msgp/msgp"

	"saltern/job"
)

// This file packs facts for the daemon's method import, docs/protocol.md.

func appendFact(b []byte, f job.Fact) []byte {
	switch f := f.(type) {
	case job.Load:
		b = factHead(b, 4, "load", f.Version)
		b = headerOf(b, map[string]string{
			"jid": string(f.JID), "shape": shapes[f.Rank], "fun": f.Fun, "tgt": f.Target, "tgt_type": f.TargetType,
			"user": f.User, "master": f.Master,
		}, f.Keep, f.Surrogates, nil)
		return msgp.AppendBytes(b, f.Payload)
	case job.Minions:
		b = factHead(b, 6, "minions", f.Version)
		b = msgp.AppendString(b, string(f.JID))
		b = msgp.AppendArrayHeader(b, uint32(len(f.IDs)))
		for _, id := range f.IDs {
			b = msgp.AppendString(b, string(id))
		}
		return appendKeep(msgp.AppendString(b, f.Syndic), f.Keep)
	case job.Return:
		return appendReturnFact(b, f)
	case job.EndTime:
		b = factHead(b, 5, "endtime", f.Version)
		return appendKeep(msgp.AppendString(msgp.AppendString(b, string(f.JID)), f.Text), f.Keep)
	case job.NoCache:
		b = factHead(b, 4, "nocache", f.Version)
		return appendKeep(msgp.AppendString(b, string(f.JID)), f.Keep)
	case job.Event:
		b = factHead(b, 7, "event", f.Version)
		b = msgp.AppendBytes(msgp.AppendString(b, f.Master), f.ID[:])
		return msgp.AppendBool(msgp.AppendBytes(msgp.AppendString(b, f.Tag), f.Data), f.Surrogates)
	default:
		panic("cli: a fact without a form on the wire")
	}
}

var shapes = map[job.Rank]string{job.RankPublish: "publish", job.RankLoad: "load", job.RankReturn: "return"}

func appendReturnFact(b []byte, f job.Return) []byte {
	b = factHead(b, 6, "return", f.Version)
	b = headerOf(b, map[string]string{
		"jid": string(f.JID), "id": string(f.Minion), "fun": f.Fun, "master": f.Master,
	}, f.Keep, f.Surrogates, func(add func(key string, packed []byte)) {
		if f.RetCode != nil {
			add("retcode", msgp.AppendInt64(nil, *f.RetCode))
		}
		if f.Success != nil {
			add("success", msgp.AppendBool(nil, *f.Success))
		}
		add("failed", msgp.AppendBool(nil, f.Failed))
	})
	b = msgp.AppendBytes(b, f.Ret)
	return msgp.AppendBytes(msgp.AppendBytes(b, f.Rest), f.Times)
}

// factHead begins a fact of n elements: its kind, and when it came.
func factHead(b []byte, n uint32, kind string, v job.Version) []byte {
	b = msgp.AppendString(msgp.AppendArrayHeader(b, n), kind)
	return msgp.AppendFloat64(b, float64(v.Time().UnixMilli())/1000)
}

// headerOf appends a header: the texts that are not empty, and what more there is.
func headerOf(b []byte, texts map[string]string, keep job.Keep, surrogates bool, more func(func(string, []byte))) []byte {
	var body []byte
	n := uint32(0)
	add := func(key string, packed []byte) {
		body, n = append(msgp.AppendString(body, key), packed...), n+1
	}
	for key, text := range texts {
		if text != "" {
			add(key, msgp.AppendString(nil, text))
		}
	}
	if keep >= 0 {
		add("keep", msgp.AppendInt64(nil, int64(keep)))
	}
	if surrogates {
		add("surrogates", msgp.AppendBool(nil, true))
	}
	if more != nil {
		more(add)
	}
	return append(msgp.AppendMapHeader(b, n), body...)
}

func appendKeep(b []byte, keep job.Keep) []byte {
	if keep < 0 {
		return msgp.AppendNil(b)
	}
	return msgp.AppendInt64(b, int64(keep))
}
