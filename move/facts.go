package move

import (
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/tinylib/msgp/msgp"

	"saltern/job"
)

// secrets are the keys that the returner takes out of loads and their kwargs (its _SECRETS).
var secrets = []string{"key", "token", "password", "tok"}

// loadOf makes the fact of a packed load, as the returner would hand it over. published says that
// the store had a list of its minions.
func loadOf(jid job.JID, packed []byte, published bool, at time.Time, o Options) (job.Load, error) {
	if msgp.NextType(packed) != msgp.MapType {
		return job.Load{}, fmt.Errorf("the load is a %s and no map", msgp.NextType(packed))
	}
	all := entries(packed)
	l := job.Load{
		JID: jid, Version: Version(at), Rank: job.RankLoad, Keep: o.Keep, Master: o.Master,
		Fun: text(find(all, "fun")), Target: text(find(all, "tgt")), TargetType: text(find(all, "tgt_type")),
		User: text(find(all, "user")), Payload: scrubbed(packed, all),
	}
	switch {
	case find(all, "return") != nil:
		l.Rank = job.RankReturn
	case published && find(all, "tgt") != nil:
		l.Rank = job.RankPublish
	}
	return l, nil
}

// scrubbed is a load without passwords, tokens and the master's own key; the load as it is where it
// has none.
func scrubbed(packed []byte, all []entry) []byte {
	kept := withoutSecrets(all)
	changed := len(kept) < len(all)
	for i, e := range kept {
		if e.name() != "kwargs" {
			continue
		}
		kwargs := entries(e.value)
		if clean := withoutSecrets(kwargs); len(clean) < len(kwargs) {
			kept[i].value, changed = join(clean), true
		}
	}
	if !changed {
		return packed
	}
	return join(kept)
}

func withoutSecrets(all []entry) []entry {
	return slices.DeleteFunc(slices.Clone(all), func(e entry) bool { return slices.Contains(secrets, e.name()) })
}

// returnOf makes the fact of a minion's return from the packed map of what the store has of it. fun
// is the function of the job, for a map without one.
func returnOf(jid job.JID, minion job.Minion, packed []byte, fun string, at time.Time, o Options) (job.Return, error) {
	all := entries(packed)
	ret := find(all, "return")
	if ret == nil {
		return job.Return{}, fmt.Errorf("it has no return")
	}
	r := job.Return{
		JID: jid, Minion: minion, Version: Version(at), Fun: fun, Master: o.Master, Keep: o.Keep, Ret: ret,
		RetCode: integer(find(all, "retcode")), Success: truth(find(all, "success")), Failed: failed(all, ret),
	}
	if own := text(find(all, "fun")); own != "" {
		r.Fun = own
	}
	var rest, times []entry
	for _, e := range all {
		switch e.name() {
		case "return":
		case "_stamp", "ts":
			times = append(times, e)
		default:
			rest = append(rest, e)
		}
	}
	r.Rest, r.Times = join(rest), join(times)
	return r, nil
}

// failed says whether a return tells of a failure, by the rules of the returner's _failed.
func failed(all []entry, ret []byte) bool {
	for _, code := range each(find(all, "retcode")) {
		if n := integer(code); n != nil && *n != 0 {
			return true
		}
	}
	if slices.ContainsFunc(each(find(all, "success")), isFalse) {
		return true
	}
	result := entries(ret)
	if isFalse(find(result, "success")) && find(result, "fun_args") != nil { // a runner's
		return true
	}
	return slices.ContainsFunc(result, func(state entry) bool {
		s := entries(state.value)
		return find(s, "__run_num__") != nil && isFalse(find(s, "result"))
	})
}

// each are the values of a job with several functions, or the one of a job with one.
func each(b []byte) [][]byte {
	if len(b) == 0 {
		return nil
	}
	switch msgp.NextType(b) {
	case msgp.MapType:
		var values [][]byte
		for _, e := range entries(b) {
			values = append(values, e.value)
		}
		return values
	case msgp.ArrayType:
		return elements(b)
	default:
		return [][]byte{b}
	}
}

// minionsOf are the ids of a packed list, those that no minion can have left out.
func minionsOf(b []byte) []job.Minion {
	var ids []job.Minion
	for _, one := range elements(b) {
		if id := text(one); validID(id, job.MaxMinionBytes) {
			ids = append(ids, job.Minion(id))
		}
	}
	return job.UnionMinions(ids)
}

func validID(id string, most int) bool { return id != "" && len(id) <= most && utf8.ValidString(id) }

// stampOf is the time in the _stamp of a full return, Salt's UTC without a zone; otherwise, where
// there is none.
func stampOf(packed []byte, otherwise time.Time) time.Time {
	stamp := text(find(entries(packed), "_stamp"))
	if at, err := time.Parse("2006-01-02T15:04:05.999999", stamp); err == nil {
		return at
	}
	return otherwise
}

// timeOf is the time of a jid; otherwise, where it has none.
func timeOf(jid job.JID, otherwise time.Time) time.Time {
	if at, ok := jid.Time(); ok {
		return at
	}
	return otherwise
}
