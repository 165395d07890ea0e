// Package proxytest has a durable tier and a cache for tests of the proxy: maps under a mutex, simple
// enough to be seen to be right, with hooks at which a test can make a call fail, hang, or stop
// between its reading and its answer.
package proxytest

import (
	"context"
	"sync"

	"saltern/job"
)

// Call is a call of a tier, as a hook sees it.
type Call struct {
	// Op is the method in lower case: "head", "returns", "merge", "fill", "evict", "list", "expire".
	Op string
	// JID is empty where the call is not of one job. A merge has that of its first fact.
	JID job.JID
	// Done is false before the tier looks at what it has, true when its answer is made and not given
	// yet.
	Done bool
}

// Hook is called before and after each call of a tier, without a lock held. An error becomes that of
// the call; of a call that is done it leaves what the call did.
type Hook func(context.Context, Call) error

// hooks calls a hook and counts the calls.
type hooks struct {
	mu    sync.Mutex // guards the rest
	hook  Hook
	calls map[string]int
}

// On sets the hook. Nil takes it away.
func (h *hooks) On(hook Hook) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hook = hook
}

// Calls is how often a method was called.
func (h *hooks) Calls(op string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.calls[op]
}

func (h *hooks) call(ctx context.Context, c Call) error {
	h.mu.Lock()
	if !c.Done {
		if h.calls == nil {
			h.calls = make(map[string]int)
		}
		h.calls[c.Op]++
	}
	hook := h.hook
	h.mu.Unlock()
	if hook == nil {
		return ctx.Err()
	}
	return hook(ctx, c)
}

// hooked makes one call.
func hooked[T any](
	ctx context.Context, h *hooks, op string, jid job.JID, do func() (T, error),
) (T, error) {
	var zero T
	if err := h.call(ctx, Call{Op: op, JID: jid}); err != nil {
		return zero, err
	}
	v, err := do()
	if hookErr := h.call(ctx, Call{Op: op, JID: jid, Done: true}); hookErr != nil {
		return zero, hookErr
	}
	return v, err
}
