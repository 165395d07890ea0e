package tiertest

import (
	"fmt"

	"saltern/job"
)

// normalHead and normalReturn make nil of empty slices: a tier that keeps bytes cannot tell them
// apart, and nobody asks it to.
func normalHead(h job.Head) job.Head {
	if len(h.Minions) == 0 {
		h.Minions = nil
	}
	if h.Load != nil {
		l := *h.Load
		l.Payload = normalBytes(l.Payload)
		h.Load = &l
	}
	return h
}

func normalReturn(r job.Return) job.Return {
	r.Ret, r.Rest, r.Times = normalBytes(r.Ret), normalBytes(r.Rest), normalBytes(r.Times)
	return r
}

func normalBytes(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return b
}

// showHead and showReturn write values with what their pointers point to, and no long bytes.
func showHead(h job.Head) string {
	s := fmt.Sprintf("{%q minions %.200q", h.JID, h.Minions)
	if l := h.Load; l != nil {
		s += fmt.Sprintf(" load {version %d rank %d fun %q tgt %q %q user %q master %q keep %d surrogates %v %d bytes %.40x}",
			l.Version, l.Rank, l.Fun, l.Target, l.TargetType, l.User, l.Master, l.Keep, l.Surrogates,
			len(l.Payload), l.Payload)
	}
	if h.EndTime != nil {
		s += fmt.Sprintf(" end %+v", *h.EndTime)
	}
	if h.NoCache != nil {
		s += fmt.Sprintf(" nocache %+v", *h.NoCache)
	}
	return s + "}"
}

func showReturn(r job.Return) string {
	return fmt.Sprintf("{%q of %q version %d fun %q master %q keep %d retcode %s success %s failed %v surrogates %v "+
		"ret %d bytes %.40x rest %.40x times %.40x}",
		r.Minion, r.JID, r.Version, r.Fun, r.Master, r.Keep, showPtr(r.RetCode), showPtr(r.Success), r.Failed,
		r.Surrogates, len(r.Ret), r.Ret, r.Rest, r.Times)
}

func showPtr[T any](p *T) string {
	if p == nil {
		return "nil"
	}
	return fmt.Sprint(*p)
}
