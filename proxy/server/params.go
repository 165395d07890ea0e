package server

import (
	"errors"
	"fmt"
	"slices"

	"github.com/tinylib/msgp/msgp"

	"saltern/job"
	"saltern/tiers"
)

// params reads the parameters of a call one after the other. After the first error every further
// read gives a zero value; done says what was wrong. Strings and bytes are copies: the frame that
// they come from is used again.
type params struct {
	buf    []byte
	left   uint32
	limits Limits
	err    error
}

func newParams(frame []byte, limits Limits) *params {
	p := &params{limits: limits}
	p.left, p.buf, p.err = msgp.ReadArrayHeaderBytes(frame)
	return p
}

// fail notes what is wrong with the parameter that is being read.
func (p *params) fail(what string, err error) {
	switch {
	case p.err != nil:
	case errors.Is(err, tiers.ErrTooLarge):
		p.err = fmt.Errorf("%s: %w", what, err)
	default:
		p.err = fmt.Errorf("%w: %s: %w", tiers.ErrInvalid, what, err)
	}
}

// done gives the first error.
func (p *params) done() error { return p.err }

// traceparent reads what may follow the parameters of a method: a map with W3C's trace context. What is
// none is as if it were not there.
func (p *params) traceparent() string {
	for ; p.err == nil && p.left > 1; p.left-- {
		p.buf, p.err = msgp.Skip(p.buf)
	}
	if p.err != nil || p.left == 0 || msgp.NextType(p.buf) != msgp.MapType {
		return ""
	}
	found := ""
	n, b, err := msgp.ReadMapHeaderBytes(p.buf)
	for ; err == nil && n > 0; n-- {
		var key []byte
		if key, b, err = msgp.ReadStringZC(b); err != nil {
			return ""
		}
		if string(key) == "traceparent" && msgp.NextType(b) == msgp.StrType {
			found, b, err = msgp.ReadStringBytes(b)
			continue
		}
		b, err = msgp.Skip(b)
	}
	return found
}

// next says whether there is another parameter; one that is not there reads as nil.
func (p *params) next() bool {
	if p.err != nil || p.left == 0 {
		return false
	}
	p.left--
	if msgp.IsNil(p.buf) {
		p.buf = p.buf[1:]
		return false
	}
	return true
}

func param[T any](p *params, what string, read func([]byte) (T, []byte, error)) T {
	var zero T
	if !p.next() {
		return zero
	}
	v, rest, err := read(p.buf)
	if err != nil {
		p.fail(what, err)
		return zero
	}
	p.buf = rest
	return v
}

func (p *params) str(what string) string { return param(p, what, msgp.ReadStringBytes) }
func (p *params) bool(what string) bool  { return param(p, what, msgp.ReadBoolBytes) }

// keep reads a number of seconds, nil for unset.
func (p *params) keep(what string) job.Keep {
	k := job.KeepUnset
	if v := param(p, what, readOptional(msgp.ReadInt64Bytes)); v != nil {
		k = keepOf(*v)
	}
	return k
}

// keepOf takes what no clock can mean, a negative number, for unset.
func keepOf(seconds int64) job.Keep {
	if seconds < 0 {
		return job.KeepUnset
	}
	return job.Keep(seconds)
}

func readOptional[T any](read func([]byte) (T, []byte, error)) func([]byte) (*T, []byte, error) {
	return func(b []byte) (*T, []byte, error) {
		v, rest, err := read(b)
		return &v, rest, err
	}
}

// bin reads bytes that are no MessagePack of their own.
func (p *params) bin(what string) []byte {
	return param(p, what, func(b []byte) ([]byte, []byte, error) { return msgp.ReadBytesBytes(b, nil) })
}

// packed reads a payload and sees to it that it is whole.
func (p *params) packed(what string) []byte {
	return param(p, what, func(b []byte) ([]byte, []byte, error) {
		v, rest, err := msgp.ReadBytesZC(b)
		if err != nil {
			return nil, nil, err
		}
		if len(v) > p.limits.MaxPayload {
			return nil, nil, fmt.Errorf("%w: %d bytes, the limit is %d", tiers.ErrTooLarge, len(v), p.limits.MaxPayload)
		}
		return slices.Clone(v), rest, checkPacked(v, p.limits.MaxDepth-aroundDepth)
	})
}

// packedMap reads a payload that is a map.
func (p *params) packedMap(what string) []byte {
	b := p.packed(what)
	if p.err != nil {
		return nil
	}
	if b == nil {
		return emptyMap
	}
	if msgp.NextType(b) != msgp.MapType {
		p.fail(what, fmt.Errorf("a map is needed, not a %s", msgp.NextType(b)))
	}
	return b
}

// emptyMap is a packed map without elements.
var emptyMap = []byte{0x80}

// minions reads an array of ids; there says whether there was one.
func (p *params) minions(what string) (ids []job.Minion, there bool) {
	ids = param(p, what, func(b []byte) ([]job.Minion, []byte, error) {
		there = true
		return readStrings[job.Minion](b)
	})
	return ids, there
}

func readStrings[S ~string](b []byte) ([]S, []byte, error) {
	n, b, err := msgp.ReadArrayHeaderBytes(b)
	if err != nil {
		return nil, nil, err
	}
	if int64(n) > int64(len(b)) { // each element takes at least a byte
		return nil, nil, msgp.ErrShortBytes
	}
	out := make([]S, n)
	for i := range out {
		var s string
		if s, b, err = msgp.ReadStringBytes(b); err != nil {
			return nil, nil, err
		}
		out[i] = S(s)
	}
	return out, b, nil
}

// array reads an array whose elements each reads.
func (p *params) array(what string, each func(*params)) {
	if !p.next() {
		return
	}
	n, rest, err := msgp.ReadArrayHeaderBytes(p.buf)
	if err != nil {
		p.fail(what, err)
		return
	}
	p.buf = rest
	outer := p.left
	for range n {
		if p.err != nil {
			return
		}
		p.left = 1
		each(p)
	}
	p.left = outer
}

// tuple reads an array that is one parameter, and whose elements read then reads as parameters.
func (p *params) tuple(what string, read func()) (there bool) {
	if !p.next() {
		return false
	}
	n, rest, err := msgp.ReadArrayHeaderBytes(p.buf)
	if err != nil {
		p.fail(what, err)
		return false
	}
	outer := p.left
	p.buf, p.left = rest, n
	read()
	p.skipRest(what)
	p.left = outer
	return true
}

func (p *params) skipRest(what string) {
	for p.left > 0 && p.err == nil {
		p.left--
		p.skip(what)
	}
}

func (p *params) skip(what string) {
	rest, err := msgp.Skip(p.buf)
	if err != nil {
		p.fail(what, err)
		return
	}
	p.buf = rest
}

// header reads a map, key by key. set reads the value of a key that it knows with the readers of h,
// and says false of one that it does not.
func (p *params) header(what string, set func(h *params, key string) bool) {
	if !p.next() {
		return
	}
	n, rest, err := msgp.ReadMapHeaderBytes(p.buf)
	if err != nil {
		p.fail(what, err)
		return
	}
	outer := p.left
	p.buf = rest
	for range n {
		var key []byte
		if key, p.buf, err = msgp.ReadStringZC(p.buf); err != nil {
			p.fail(what, err)
			return
		}
		p.left = 1
		if !set(p, string(key)) {
			p.skip(what)
		}
		if p.err != nil {
			return
		}
	}
	p.left = outer
}

// loadHeader reads the header of a load.
func (p *params) loadHeader() job.Load {
	l := job.Load{Keep: job.KeepUnset, Rank: job.RankLoad}
	p.header("load header", func(h *params, key string) bool {
		switch key {
		case "jid":
			l.JID = job.JID(h.str(key))
		case "shape":
			l.Rank = h.rank(key)
		case "fun":
			l.Fun = h.str(key)
		case "tgt":
			l.Target = h.str(key)
		case "tgt_type":
			l.TargetType = h.str(key)
		case "user":
			l.User = h.str(key)
		case "master":
			l.Master = h.str(key)
		case "keep":
			l.Keep = h.keep(key)
		case "surrogates":
			l.Surrogates = h.bool(key)
		default:
			return false
		}
		return true
	})
	return l
}

func (p *params) rank(what string) job.Rank {
	switch shape := p.str(what); shape {
	case "publish":
		return job.RankPublish
	case "load", "":
		return job.RankLoad
	case "return":
		return job.RankReturn
	default:
		p.fail(what, fmt.Errorf("%q is none of publish, load, return", shape))
		return 0
	}
}

// returnHeader reads the header of a return.
func (p *params) returnHeader() job.Return {
	r := job.Return{Keep: job.KeepUnset}
	p.header("return header", func(h *params, key string) bool {
		switch key {
		case "jid":
			r.JID = job.JID(h.str(key))
		case "id":
			r.Minion = job.Minion(h.str(key))
		case "fun":
			r.Fun = h.str(key)
		case "master":
			r.Master = h.str(key)
		case "keep":
			r.Keep = h.keep(key)
		case "surrogates":
			r.Surrogates = h.bool(key)
		case "retcode":
			r.RetCode = param(h, key, readOptional(msgp.ReadInt64Bytes))
		case "success":
			r.Success = param(h, key, readOptional(msgp.ReadBoolBytes))
		case "failed":
			r.Failed = h.bool(key)
		default:
			return false
		}
		return true
	})
	return r
}
