package server

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"slices"
	"time"

	"github.com/tinylib/msgp/msgp"

	"saltern/job"
	"saltern/tiers"
)

// Jobs is the subset of the proxy that Salt's calls need.
type Jobs interface {
	Write(ctx context.Context, facts ...job.Fact) ([]job.Outcome, error)
	PrepJID(ctx context.Context) job.JID
	Head(ctx context.Context, jid job.JID) (job.Head, error)
	Returns(ctx context.Context, jid job.JID, q tiers.ReturnQuery) (tiers.ReturnPage, error)
	List(ctx context.Context, f tiers.Filter) (tiers.ListPage, error)
	LastFunctions(ctx context.Context, fun string) ([]job.LastFunction, error)
	Clean()
	tiers.RegisterKeeper
}

// method appends its result to out. After an error, out is thrown away.
type method func(s *RPC, ctx context.Context, out []byte, p *params) ([]byte, error)

var methods = map[string]method{
	"hello":          (*RPC).hello,
	"ping":           (*RPC).ping,
	"prep_jid":       (*RPC).prepJID,
	"save_load":      (*RPC).saveLoad,
	"save_minions":   (*RPC).saveMinions,
	"save_return":    (*RPC).saveReturn,
	"get_load":       (*RPC).getLoad,
	"get_jid":        (*RPC).getJID,
	"get_fun":        (*RPC).getFun,
	"get_minions":    (*RPC).getMinions,
	"list_jobs":      (*RPC).listJobs,
	"update_endtime": (*RPC).updateEndtime,
	"get_endtime":    (*RPC).getEndtime,
	"save_events":    (*RPC).saveEvents,
	"clean_old_jobs": (*RPC).cleanOldJobs,
	"save_reg":       (*RPC).saveReg,
	"load_reg":       (*RPC).loadReg,

	// For `saltern import` and `saltern backup`.
	"import":       (*RPC).importFacts,
	"backup_begin": (*RPC).backupBegin,
	"backup_read":  (*RPC).backupRead,
	"backup_end":   (*RPC).backupEnd,

	// For `saltern log`.
	"log_level": (*RPC).logLevel,

	// For `saltern journal`.
	"journal_status":  (*RPC).journalStatus,
	"journal_entries": (*RPC).journalEntries,
	"journal_replay":  (*RPC).journalReplay,
	"journal_discard": (*RPC).journalDiscard,
}

func stack() string { return string(debug.Stack()) }

func (s *RPC) hello(_ context.Context, out []byte, p *params) ([]byte, error) {
	protocol := int64(0)
	p.header("hello", func(h *params, key string) bool {
		if key != "protocol" {
			return false
		}
		protocol = param(h, key, msgp.ReadInt64Bytes)
		return true
	})
	if err := p.done(); err != nil {
		return out, err
	}
	if protocol != Protocol {
		return out, fmt.Errorf("%w: protocol %d; this saltern (%s) speaks %d: install the returner of its version",
			errUnsupported, protocol, s.o.Version, Protocol)
	}
	out = msgp.AppendMapHeader(out, 5)
	out = msgp.AppendInt(msgp.AppendString(out, "protocol"), Protocol)
	out = msgp.AppendString(msgp.AppendString(out, "version"), s.o.Version)
	out = msgp.AppendInt(msgp.AppendString(out, "max_payload"), s.o.Limits.MaxPayload)
	out = msgp.AppendString(msgp.AppendString(out, "namespace"), s.o.Namespace)
	out = msgp.AppendArrayHeader(msgp.AppendString(out, "scopes"), 2)
	return msgp.AppendString(msgp.AppendString(out, "read"), "write"), nil
}

func (s *RPC) ping(_ context.Context, out []byte, _ *params) ([]byte, error) {
	return msgp.AppendBool(out, true), nil
}

func (s *RPC) prepJID(ctx context.Context, out []byte, p *params) ([]byte, error) {
	noCache, keep := p.bool("nocache"), p.keep("keep")
	if err := p.done(); err != nil {
		return out, err
	}
	jid := s.o.Jobs.PrepJID(ctx)
	if noCache {
		if _, err := s.o.Jobs.Write(ctx, job.NoCache{JID: jid, Keep: keep}); err != nil {
			return out, err
		}
	}
	return msgp.AppendString(out, string(jid)), nil
}

func (s *RPC) saveLoad(ctx context.Context, out []byte, p *params) ([]byte, error) {
	facts := p.load()
	return s.write(ctx, out, p, facts...)
}

// load reads a load and its minions as facts.
func (p *params) load() []job.Fact {
	l := p.loadHeader()
	l.Payload = p.packedMap("load")
	facts := []job.Fact{l}
	if ids, there := p.minions("minions"); there {
		facts = append(facts, job.Minions{JID: l.JID, IDs: job.UnionMinions(ids), Keep: l.Keep})
	}
	return facts
}

// write stores facts if the parameters were right, and answers true.
func (s *RPC) write(ctx context.Context, out []byte, p *params, facts ...job.Fact) ([]byte, error) {
	if err := p.done(); err != nil {
		return out, err
	}
	if _, err := s.o.Jobs.Write(ctx, facts...); err != nil {
		return out, err
	}
	return msgp.AppendBool(out, true), nil
}

func (s *RPC) saveMinions(ctx context.Context, out []byte, p *params) ([]byte, error) {
	m := job.Minions{JID: job.JID(p.str("jid"))}
	ids, _ := p.minions("minions")
	m.IDs, m.Syndic, m.Keep = job.UnionMinions(ids), p.str("syndic"), p.keep("keep")
	return s.write(ctx, out, p, m)
}

func (s *RPC) saveReturn(ctx context.Context, out []byte, p *params) ([]byte, error) {
	r := p.returnHeader()
	r.Ret, r.Rest, r.Times = p.packed("return"), p.packedMap("rest"), p.packedMap("times")
	var facts []job.Fact
	p.tuple("load", func() { facts = p.load() })
	if err := p.done(); err != nil {
		return out, err
	}
	if r.Ret == nil {
		return out, fmt.Errorf("%w: save_return without a return", tiers.ErrInvalid)
	}
	outcomes, err := s.o.Jobs.Write(ctx, append(facts, r)...)
	if err != nil {
		return out, err
	}
	outcome := outcomes[len(outcomes)-1]
	if outcome == job.Created {
		outcome = job.Stored
	}
	if outcome == job.Differs {
		s.o.Logger.Warn("a minion returned twice with different results; the first one stays",
			"jid", string(r.JID), "minion", string(r.Minion), "fun", r.Fun)
	}
	return msgp.AppendString(out, outcome.String()), nil
}

func (s *RPC) getLoad(ctx context.Context, out []byte, p *params) ([]byte, error) {
	jid := job.JID(p.str("jid"))
	if err := p.done(); err != nil {
		return out, err
	}
	h, err := s.o.Jobs.Head(ctx, jid)
	if errors.Is(err, tiers.ErrNotFound) {
		return msgp.AppendNil(out), nil
	}
	if err != nil {
		return out, err
	}
	return appendLoad(out, h)
}

// pageBytes is how much payload one answer of get_jid carries: large enough that a job of a few
// hundred minions is one answer, small enough that neither side ever holds much.
const pageBytes = 1 << 20

func (s *RPC) getJID(ctx context.Context, out []byte, p *params) ([]byte, error) {
	jid, after := job.JID(p.str("jid")), job.Minion(p.str("after"))
	if err := p.done(); err != nil {
		return out, err
	}
	page, err := s.o.Jobs.Returns(ctx, jid, tiers.ReturnQuery{After: after, MaxBytes: pageBytes})
	if err != nil && !errors.Is(err, tiers.ErrNotFound) {
		return out, err
	}
	out = msgp.AppendArrayHeader(out, 2)
	out = msgp.AppendMapHeader(out, uint32(len(page.Returns)))
	for i := range page.Returns {
		out = msgp.AppendString(out, string(page.Returns[i].Minion))
		if out, err = appendReturn(out, &page.Returns[i]); err != nil {
			return out, err
		}
	}
	return appendOptional(out, string(page.Next)), nil
}

func (s *RPC) getFun(ctx context.Context, out []byte, p *params) ([]byte, error) {
	fun := p.str("fun")
	if err := p.done(); err != nil {
		return out, err
	}
	if fun == "" { // no minion's last function has no name
		return msgp.AppendMapHeader(out, 0), nil
	}
	last, err := s.o.Jobs.LastFunctions(ctx, fun)
	if err != nil {
		return out, err
	}
	out = msgp.AppendMapHeader(out, uint32(len(last)))
	for _, l := range last {
		out = msgp.AppendString(msgp.AppendString(out, string(l.Minion)), l.Fun)
	}
	return out, nil
}

func (s *RPC) getMinions(ctx context.Context, out []byte, p *params) ([]byte, error) {
	last, err := s.o.Jobs.LastFunctions(ctx, "")
	if err != nil {
		return out, err
	}
	out = msgp.AppendArrayHeader(out, uint32(len(last)))
	for _, l := range last {
		out = msgp.AppendString(out, string(l.Minion))
	}
	return out, nil
}

func (s *RPC) listJobs(ctx context.Context, out []byte, p *params) ([]byte, error) {
	f := p.filter()
	if err := p.done(); err != nil {
		return out, err
	}
	page, err := s.o.Jobs.List(ctx, f)
	if err != nil {
		return out, err
	}
	out = msgp.AppendArrayHeader(out, 3)
	out = msgp.AppendArrayHeader(out, uint32(len(page.Jobs)))
	for _, j := range page.Jobs {
		if !f.Loads {
			out = msgp.AppendString(out, string(j.JID))
			continue
		}
		out = appendRow(out, j)
	}
	out = appendOptional(out, page.Next)
	return msgp.AppendInt(out, page.Hidden), nil
}

// maxListLimit bounds the rows of one answer.
const maxListLimit = 5000

func (p *params) filter() tiers.Filter {
	var f tiers.Filter
	p.header("filter", func(h *params, key string) bool {
		switch key {
		case "limit":
			f.Limit = min(int(param(h, key, msgp.ReadInt32Bytes)), maxListLimit)
		case "cursor":
			f.Cursor = h.str(key)
		case "not_fun":
			f.NotFun = param(h, key, readStrings[string])
		case "fun":
			f.Fun = h.str(key)
		case "tgt":
			f.Target = h.str(key)
		case "user":
			f.User = h.str(key)
		case "master":
			f.Master = h.str(key)
		case "minion":
			f.Minion = job.Minion(h.str(key))
		case "state":
			f.State = job.State(h.str(key))
		case "from":
			f.From = h.time(key)
		case "to":
			f.To = h.time(key)
		case "loads":
			f.Loads = h.bool(key)
		default:
			return false
		}
		return true
	})
	return f
}

// time reads seconds since 1970, with or without a fraction.
func (p *params) time(what string) time.Time {
	return param(p, what, func(b []byte) (time.Time, []byte, error) {
		seconds, rest, err := readNumber(b)
		if err != nil {
			return time.Time{}, nil, err
		}
		whole, fraction := math.Modf(seconds)
		return time.Unix(int64(whole), int64(fraction*1e9)).UTC(), rest, nil
	})
}

func readNumber(b []byte) (float64, []byte, error) {
	if msgp.NextType(b) == msgp.Float64Type {
		return msgp.ReadFloat64Bytes(b)
	}
	i, rest, err := msgp.ReadInt64Bytes(b)
	return float64(i), rest, err
}

func (s *RPC) updateEndtime(ctx context.Context, out []byte, p *params) ([]byte, error) {
	e := job.EndTime{JID: job.JID(p.str("jid")), Text: p.str("endtime"), Keep: p.keep("keep")}
	return s.write(ctx, out, p, e)
}

func (s *RPC) getEndtime(ctx context.Context, out []byte, p *params) ([]byte, error) {
	jid := job.JID(p.str("jid"))
	if err := p.done(); err != nil {
		return out, err
	}
	h, err := s.o.Jobs.Head(ctx, jid)
	if err != nil && !errors.Is(err, tiers.ErrNotFound) {
		return out, err
	}
	if h.EndTime == nil {
		return msgp.AppendNil(out), nil
	}
	return msgp.AppendString(out, h.EndTime.Text), nil
}

func (s *RPC) saveEvents(ctx context.Context, out []byte, p *params) ([]byte, error) {
	master := p.str("master")
	var facts []job.Fact
	p.array("events", func(e *params) {
		e.tuple("event", func() { facts = append(facts, e.event(master)) })
	})
	return s.write(ctx, out, p, slices.Clip(facts)...)
}

func (p *params) event(master string) job.Event {
	e := job.Event{Master: master}
	id := p.bin("event id")
	if n := copy(e.ID[:], id); n != len(e.ID) || len(id) != n {
		p.fail("event id", fmt.Errorf("%d bytes, not %d", len(id), len(e.ID)))
	}
	e.Tag, e.Data, e.Surrogates = p.str("tag"), p.packed("data"), p.bool("surrogates")
	if e.Data == nil {
		e.Data = []byte{0xc0} // nil
	}
	return e
}

func (s *RPC) cleanOldJobs(_ context.Context, out []byte, _ *params) ([]byte, error) {
	s.o.Jobs.Clean()
	return msgp.AppendBool(out, true), nil
}

func (s *RPC) saveReg(ctx context.Context, out []byte, p *params) ([]byte, error) {
	master, data := p.str("master"), p.bin("register")
	if err := p.done(); err != nil {
		return out, err
	}
	if err := s.o.Jobs.SaveRegister(ctx, master, data); err != nil {
		return out, err
	}
	return msgp.AppendBool(out, true), nil
}

func (s *RPC) loadReg(ctx context.Context, out []byte, p *params) ([]byte, error) {
	master := p.str("master")
	if err := p.done(); err != nil {
		return out, err
	}
	data, err := s.o.Jobs.LoadRegister(ctx, master)
	if errors.Is(err, tiers.ErrNotFound) {
		return msgp.AppendNil(out), nil
	}
	if err != nil {
		return out, err
	}
	return msgp.AppendBytes(out, data), nil
}
