package server

import (
	"context"
	"fmt"
	"time"

	"github.com/tinylib/msgp/msgp"

	"saltern/proxy/journal"
	"saltern/tiers"
)

// Journal is what an operator may look at and do; see package journal.
type Journal interface {
	Status() journal.Status
	Entries(after uint64, n int) ([]journal.Entry, error)
	Dead() ([]journal.Entry, error)
	Discard(seq uint64) error
	Resend(since time.Time) int
}

var errNoJournal = fmt.Errorf("%w: there is no journal: the store is on this machine's own disk", tiers.ErrInvalid)

// maxJournalEntries bounds one answer of journal_entries.
const maxJournalEntries = 1000

func (s *RPC) journalStatus(_ context.Context, out []byte, p *params) ([]byte, error) {
	if err := s.needJournal(p); err != nil {
		return out, err
	}
	st := s.o.Journal.Status()
	out = msgp.AppendMapHeader(out, 8)
	for _, n := range []struct {
		name  string
		value int64
	}{
		{"entries", int64(st.Entries)}, {"facts", int64(st.Facts)}, {"bytes", st.Bytes}, {"quota", st.Quota},
		{"rate", st.Rate}, {"dead", st.Dead}, {"degraded", int64(st.Degraded)},
	} {
		out = msgp.AppendInt64(msgp.AppendString(out, n.name), n.value)
	}
	return appendMoment(msgp.AppendString(out, "oldest"), st.Oldest), nil
}

func (s *RPC) journalEntries(_ context.Context, out []byte, p *params) ([]byte, error) {
	after, limit, dead := param(p, "after", msgp.ReadUint64Bytes), param(p, "limit", msgp.ReadIntBytes), p.bool("dead")
	if err := s.needJournal(p); err != nil {
		return out, err
	}
	list := func() ([]journal.Entry, error) { return s.o.Journal.Entries(after, min(limit, maxJournalEntries)) }
	if dead {
		list = s.o.Journal.Dead
	}
	entries, err := list()
	if err != nil {
		return out, err
	}
	out = msgp.AppendArrayHeader(out, uint32(len(entries)))
	for _, e := range entries {
		out = appendJournalEntry(out, e)
	}
	return out, nil
}

func appendJournalEntry(out []byte, e journal.Entry) []byte {
	out = msgp.AppendMapHeader(out, 7)
	out = msgp.AppendUint64(msgp.AppendString(out, "seq"), e.Seq)
	out = appendMoment(msgp.AppendString(out, "at"), e.At)
	out = msgp.AppendInt(msgp.AppendString(out, "facts"), e.Facts)
	out = msgp.AppendInt(msgp.AppendString(out, "bytes"), e.Bytes)
	out = msgp.AppendString(msgp.AppendString(out, "state"), e.State)
	out = msgp.AppendString(msgp.AppendString(out, "reason"), e.Reason)
	out = msgp.AppendArrayHeader(msgp.AppendString(out, "jobs"), uint32(len(e.Jobs)))
	for _, jid := range e.Jobs {
		out = msgp.AppendString(out, string(jid))
	}
	return out
}

// appendMoment appends a time as seconds, nil where there is none.
func appendMoment(out []byte, t time.Time) []byte {
	if t.IsZero() {
		return msgp.AppendNil(out)
	}
	return msgp.AppendFloat64(out, float64(t.UnixMicro())/1e6)
}

func (s *RPC) journalDiscard(_ context.Context, out []byte, p *params) ([]byte, error) {
	seq := param(p, "seq", msgp.ReadUint64Bytes)
	if err := s.needJournal(p); err != nil {
		return out, err
	}
	if err := s.o.Journal.Discard(seq); err != nil {
		return out, err
	}
	s.o.Logger.Warn("an entry of the journal was discarded", "entry", seq)
	return msgp.AppendBool(out, true), nil
}

func (s *RPC) journalReplay(_ context.Context, out []byte, p *params) ([]byte, error) {
	since := p.time("since")
	if err := s.needJournal(p); err != nil {
		return out, err
	}
	return msgp.AppendInt(out, s.o.Journal.Resend(since)), nil
}

func (s *RPC) needJournal(p *params) error {
	if err := p.done(); err != nil {
		return err
	}
	if s.o.Journal == nil {
		return errNoJournal
	}
	return nil
}
