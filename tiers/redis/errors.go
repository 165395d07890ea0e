package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"saltern/tiers"
)

// Class is what kind of failure a call met.
type Class string

const (
	Canceled    Class = "canceled"    // the caller left, or its deadline passed
	Timeout     Class = "timeout"     // no answer within the read timeout
	PoolBusy    Class = "pool"        // no connection was free within the pool timeout
	Unreachable Class = "unreachable" // no connection could be made, or it broke
	Loading     Class = "loading"
	ReadOnly    Class = "readonly"
	Denied      Class = "denied" // user, password or rights
	Full        Class = "oom"
	ClusterDown Class = "clusterdown"
	WrongType   Class = "wrongtype"
	Refused     Class = "refused" // any other error that Redis answered
)

// answers are the classes of what Redis answers, and what is to be done about each. Scripts put their own words
// before the error in Redis 6, so it is looked for anywhere.
var answers = []struct {
	text  string
	class Class
	hint  string
}{
	{"WRONGTYPE", WrongType, "a key of ours has a value of another kind"},
	{"LOADING", Loading, "it is loading its data"},
	{"READONLY", ReadOnly, "it is a replica: name the primary, or use the sentinel mode"},
	{"NOAUTH", Denied, "it asks for a password: set a password file"},
	{"WRONGPASS", Denied, "it refuses the user or the password: check both"},
	{"NOPERM", Denied, "the user lacks rights: see docs/redis.md for those that are needed"},
	{"invalid password", Denied, "it refuses the password"},
	{"without any password configured", Denied, "it knows no password and was given one: take the password file away"},
	{"OOM", Full, "its memory is full and it may not evict: raise maxmemory or set an eviction policy"},
	{"CLUSTERDOWN", ClusterDown, "its cluster is incomplete"},
	{"MASTERDOWN", ClusterDown, "its primary is away"},
	{"TRYAGAIN", ClusterDown, "its cluster is moving slots"},
	{"max number of clients", Refused, "it has too many clients: raise maxclients"},
	{"MISCONF", Refused, "it cannot save to its disk and refuses writes"},
}

// fail says what was being done when the client gave an error, makes it one that callers decide on, and counts
// it. The caller's own cancellation or deadline stays what it is.
func (t *Tier) fail(ctx context.Context, doing string, err error) error {
	if err == nil {
		return nil
	}
	class, hint, kind := t.classify(ctx, err)
	t.counts.failed(class)
	failed := &failure{doing: doing, class: class, kind: kind, hint: hint}
	if class == Denied {
		t.refused.set(t.o.Now(), failed)
	}
	return failed
}

// failure is an error of one line.
type failure struct {
	doing string
	class Class
	kind  error // what callers decide on
	hint  string
}

func (f *failure) Error() string {
	if f.hint == "" {
		return fmt.Sprintf("redis %s: %v", f.doing, f.kind)
	}
	return fmt.Sprintf("redis %s: %v: %s", f.doing, f.kind, f.hint)
}

func (f *failure) Unwrap() error { return f.kind }

func (t *Tier) classify(ctx context.Context, err error) (Class, string, error) {
	if ended := ended(ctx, err); ended != nil {
		return Canceled, "", ended
	}
	if errors.Is(err, goredis.ErrPoolTimeout) || errors.Is(err, goredis.ErrPoolExhausted) {
		return PoolBusy, fmt.Sprintf("all %d connections are in use", t.o.PoolSize), tiers.ErrBusy
	}
	text := err.Error()
	if netErr, ok := errors.AsType[net.Error](err); ok && netErr.Timeout() {
		if strings.Contains(text, "dial") {
			return Unreachable, fmt.Sprintf("no connection within %v: %s", t.o.DialTimeout, oneLine(text)), tiers.ErrUnavailable
		}
		return Timeout, fmt.Sprintf("no answer within %v", t.o.ReadTimeout), tiers.ErrTimeout
	}
	for _, a := range answers {
		if strings.Contains(text, a.text) {
			return a.class, a.hint, tiers.ErrUnavailable
		}
	}
	if _, answered := errors.AsType[goredis.Error](err); answered {
		return Refused, oneLine(text), tiers.ErrUnavailable
	}
	return Unreachable, oneLine(text), tiers.ErrUnavailable
}

// ended is the error of the context, where that is what ended the call. A connection has the deadline of the
// context as its own, and may notice it a moment before the context does.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	const moment = 5 * time.Millisecond
	deadline, has := ctx.Deadline()
	if has && time.Until(deadline) < moment && (errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded)) {
		return context.DeadlineExceeded
	}
	return nil
}

func oneLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	return s
}

// refusal remembers for a moment that Redis does not take our user or password. Every connection would be made,
// refused and closed again: that is hammering, and may lock us out.
type refusal struct{ last atomic.Pointer[refused] }

type refused struct {
	until time.Time
	err   error
}

// refusedFor is how long nothing is asked after a refusal.
const refusedFor = time.Second

func (r *refusal) set(now time.Time, err error) {
	r.last.Store(&refused{until: now.Add(refusedFor), err: err})
}

func (r *refusal) err(now time.Time) error {
	if last := r.last.Load(); last != nil && now.Before(last.until) {
		return last.err
	}
	return nil
}

func isWrongType(err error) bool {
	f, ok := errors.AsType[*failure](err)
	return ok && f.class == WrongType
}
