package server

import (
	"fmt"

	"github.com/tinylib/msgp/msgp"

	"saltern/job"
	"saltern/tiers"
)

// This file makes Salt's answers out of stored payloads by putting packed maps together: nothing is
// decoded, so nothing changes on the way.

// appendLoad appends the load with its minions, sorted, as get_load gives it. The minions come last:
// a load that brought a list of its own (a syndic's) is overruled by the union.
func appendLoad(out []byte, h job.Head) ([]byte, error) {
	entries, n, err := mapEntries(loadPayload(h))
	if err != nil {
		return out, err
	}
	if len(h.Minions) > 0 {
		n++
	}
	out = append(msgp.AppendMapHeader(out, n), entries...)
	if len(h.Minions) > 0 {
		out = appendMinions(msgp.AppendString(out, "Minions"), h.Minions)
	}
	return out, nil
}

func loadPayload(h job.Head) []byte {
	if h.Load == nil {
		return emptyMap
	}
	return h.Load.Payload
}

func appendMinions(out []byte, ids []job.Minion) []byte {
	out = msgp.AppendArrayHeader(out, uint32(len(ids)))
	for _, id := range ids {
		out = msgp.AppendString(out, string(id))
	}
	return out
}

// appendReturn appends a return as the minion sent it.
func appendReturn(out []byte, r *job.Return) ([]byte, error) {
	rest, n, err := mapEntries(r.Rest)
	if err != nil {
		return out, err
	}
	times, m, err := mapEntries(r.Times)
	if err != nil {
		return out, err
	}
	out = msgp.AppendMapHeader(out, n+m+1)
	out = append(append(out, rest...), times...)
	return append(msgp.AppendString(out, "return"), r.Ret...), nil
}

// appendRow appends a job of a list: jid, load, minions, end time.
func appendRow(out []byte, j tiers.Listed) []byte {
	out = msgp.AppendString(msgp.AppendArrayHeader(out, 4), string(j.JID))
	h := j.Head
	if h == nil {
		h = &job.Head{}
	}
	if h.Load == nil {
		out = msgp.AppendNil(out)
	} else {
		out = append(out, h.Load.Payload...)
	}
	out = appendMinions(out, h.Minions)
	if h.EndTime == nil {
		return msgp.AppendNil(out)
	}
	return msgp.AppendString(out, h.EndTime.Text)
}

// appendOptional appends a string, or nil for none.
func appendOptional(out []byte, s string) []byte {
	if s == "" {
		return msgp.AppendNil(out)
	}
	return msgp.AppendString(out, s)
}

// mapEntries are the packed keys and values of a packed map, without its head, and their number.
func mapEntries(packed []byte) (entries []byte, n uint32, err error) {
	if packed == nil {
		return nil, 0, nil
	}
	n, entries, err = msgp.ReadMapHeaderBytes(packed)
	if err != nil {
		return nil, 0, fmt.Errorf("%w: stored payload is no map: %w", tiers.ErrUnavailable, err)
	}
	return entries, n, nil
}
