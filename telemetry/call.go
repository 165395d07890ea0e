package telemetry

import (
	"context"
	"time"
)

// maxLookups is how many lookups of a call are told one by one: no method but a list makes more.
const maxLookups = 4

// Call is one request of a client, from when it was read to when its answer is ready. It is used by one
// goroutine, and may be used again for the next call.
type Call struct {
	Method string // of RPC, or the pattern of a path
	HTTP   bool
	// Traceparent is W3C's, as the client sent it; empty where it sent none.
	Traceparent string
	Bytes       int // of the answer
	// Error is the name of an error as clients see it, empty for none.
	Error string
	Start time.Duration // by Now
	Took  time.Duration

	n       uint8
	more    bool // there were lookups that did not fit
	lookups [maxLookups]Lookup
}

// Begin makes the call ready for a request.
func (c *Call) Begin(method string) {
	c.Method, c.Traceparent, c.Bytes, c.Error = method, "", 0, ""
	c.n, c.more, c.Took = 0, false, 0
	c.Start = Now()
}

// Lookups are those that the call made, in order.
func (c *Call) Lookups() []Lookup { return c.lookups[:c.n] }

// JID is the job that the call is about, empty for none.
func (c *Call) JID() string {
	for i := range c.Lookups() {
		if jid := c.lookups[i].JID; jid != "" {
			return jid
		}
	}
	return ""
}

// Add notes a lookup. On nil it does nothing.
func (c *Call) Add(l *Lookup) {
	if next := c.next(); next != nil {
		*next = *l
	}
}

// AddHit notes a read that the cache in the process answered.
func (c *Call) AddHit(op Op, jid string, a Answer, start, took time.Duration) {
	next := c.next()
	if next == nil {
		return
	}
	next.Op, next.JID, next.Answer, next.Memory = op, jid, a, a
	next.Coalesced, next.Stale, next.Version = false, false, 0
	next.Start, next.Took, next.Steps.n = start, took, 0
}

func (c *Call) next() *Lookup {
	if c == nil {
		return nil
	}
	if int(c.n) == len(c.lookups) {
		c.more = true
		return nil
	}
	c.n++
	return &c.lookups[c.n-1]
}

// failed says whether a tier did not do its part in the call, or the call could not be answered.
// Refusals for what was asked are not failures of ours.
func (c *Call) failed() bool {
	if serverFault(c.Error) {
		return true
	}
	for i := range c.Lookups() {
		for _, s := range c.lookups[i].Steps.All() {
			if s.Answer.IsFault() || s.Tier == Journal {
				return true
			}
		}
	}
	return false
}

type callKey struct{}

// WithCall makes lookups under ctx be noted in c.
func WithCall(ctx context.Context, c *Call) context.Context {
	return context.WithValue(ctx, callKey{}, c)
}

// CallOf is the call that ctx belongs to, nil when none.
func CallOf(ctx context.Context) *Call {
	c, _ := ctx.Value(callKey{}).(*Call)
	return c
}
