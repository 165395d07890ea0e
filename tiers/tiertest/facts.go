package tiertest

import (
	"context"
	"fmt"

	"pgregory.net/rapid"

	"saltern/job"
)

var ctx = context.Background()

// The facts below look as Salt makes them. n tells those of one kind apart, and is their version.

func (u *subject) publish(jid job.JID, n int) job.Load {
	return job.Load{
		JID: jid, Version: u.version(n), Rank: job.RankPublish, Fun: "state.apply", Target: "web*",
		TargetType: "glob", User: "sudo_alice", Master: "m1", Keep: 86400,
		Payload: fmt.Appendf([]byte{0x81, 0xa3, 't', 'g', 't', 0xa6}, "web%03d", n),
	}
}

// load is a load that came without minions, as a syndic's.
func (u *subject) load(jid job.JID, n int) job.Load {
	l := u.publish(jid, n)
	l.Rank, l.Target = job.RankLoad, "syndic"
	return l
}

// returnLoad is the load that Salt makes of a minion's return.
func (u *subject) returnLoad(jid job.JID, n int) job.Load {
	return job.Load{
		JID: jid, Version: u.version(n), Rank: job.RankReturn, Fun: "state.apply", Master: "m1",
		Keep: job.KeepUnset, Payload: []byte{0x81, 0xa2, 'i', 'd', 0xa1, 'a'},
	}
}

func (u *subject) minions(jid job.JID, n int, ids ...job.Minion) job.Minions {
	return job.Minions{JID: jid, Version: u.version(n), IDs: ids, Keep: 86400}
}

func (u *subject) ret(jid job.JID, minion job.Minion, n int) job.Return {
	zero, yes := int64(0), true
	return job.Return{
		JID: jid, Minion: minion, Version: u.version(n), Fun: "state.apply", Master: "m1", Keep: 86400,
		RetCode: &zero, Success: &yes,
		Ret:   fmt.Appendf([]byte{0xa4}, "%04d", n),
		Rest:  []byte{0x81, 0xa3, 'c', 'm', 'd', 0xa7, '_', 'r', 'e', 't', 'u', 'r', 'n'},
		Times: []byte{0x81, 0xa2, 't', 's', byte(n & 0x7f)},
	}
}

// resent is a return as its minion sends it again: equal but for the times.
func (u *subject) resent(r job.Return, n int) job.Return {
	r.Version, r.Times = u.version(n), []byte{0x81, 0xa2, 't', 's', byte(n & 0x7f)}
	return r
}

func (u *subject) endTime(jid job.JID, n int) job.EndTime {
	return job.EndTime{
		JID: jid, Version: u.version(n), Text: fmt.Sprintf("2026-08-01T00:00:%02d.000000", n), Keep: 86400,
	}
}

// genFacts draws facts of one job from few values, so that they often agree in some fields and
// differ in others. There is no mark of nocache among them: with it the order of facts matters, as
// it stops returns from being stored and takes none away.
func (u *subject) genFacts(jid job.JID) *rapid.Generator[[]job.Fact] {
	n := rapid.IntRange(1, 6)
	id := rapid.SampledFrom([]job.Minion{"a", "a.b", "b", "日本", "\x00"})
	one := rapid.Custom(func(t *rapid.T) job.Fact {
		switch rapid.IntRange(0, 5).Draw(t, "kind") {
		case 0:
			return u.publish(jid, n.Draw(t, "version"))
		case 1:
			return u.load(jid, n.Draw(t, "version"))
		case 2:
			return u.returnLoad(jid, n.Draw(t, "version"))
		case 3:
			ids := rapid.SliceOfN(id, 0, 3).Draw(t, "ids")
			return u.minions(jid, n.Draw(t, "version"), ids...)
		case 4:
			return u.endTime(jid, n.Draw(t, "version"))
		default:
			r := u.ret(jid, id.Draw(t, "minion"), n.Draw(t, "return"))
			return u.resent(r, n.Draw(t, "version"))
		}
	})
	return rapid.SliceOfN(one, 1, 8)
}
