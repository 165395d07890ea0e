package cluster

import (
	"context"
	"strings"
	"testing"
)

// Redis may lose what it holds, or hold what is not ours, at any time: the answers stay right.
func TestRedisThatLosesOrSpoilsWhatItHolds(t *testing.T) {
	r := theRig(t)
	redis := func(args ...string) error {
		_, err := r.redis.Command(t.Context(), args...)
		return err
	}
	for _, c := range []struct {
		name string
		do   func() error
	}{
		{"restarted empty", func() error {
			if err := r.redis.Kill(); err != nil {
				return err
			}
			return r.redis.Start(t.Context())
		}},
		{"FLUSHALL", func() error { return redis("FLUSHALL") }},
		{"our keys are of another type", func() error {
			return eachKey(t.Context(), r, func(key string) error { return redis("SET", key, "not ours") })
		}},
		{"our fields have other values", func() error {
			return eachKey(t.Context(), r, func(key string) error { return spoilFields(t.Context(), r, key) })
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLedger()
			finished, err := l.run(r.a)
			if err != nil {
				t.Fatal(err)
			}
			running := startRunning(t, r, l)
			if err := l.answer(r.a, running, "m1"); err != nil {
				t.Fatal(err)
			}
			if err := c.do(); err != nil {
				t.Fatal(err)
			}
			if err := l.answer(r.a, running, "m2"); err != nil {
				t.Error(err)
			}
			another, err := l.run(r.a)
			if err != nil {
				t.Fatal(err)
			}
			// b was never asked for two of them, and has an old copy of the third.
			for _, jid := range []string{finished, another} {
				if err := l.checkJob(r.b, jid); err != nil {
					t.Error(err)
				}
			}
			eventually(t, patience, func() error { return l.checkJob(r.b, running) })
			r.settle(t)
			for _, m := range r.masters() {
				if err := l.check(m); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// eachKey does something with every key that Redis has.
func eachKey(ctx context.Context, r *rig, do func(key string) error) error {
	keys, err := r.redis.Command(ctx, "KEYS", "*")
	if err != nil {
		return err
	}
	for _, key := range strings.Fields(keys) {
		if err := do(key); err != nil {
			return err
		}
	}
	return nil
}

// spoilFields gives every field of a hash another value.
func spoilFields(ctx context.Context, r *rig, key string) error {
	kind, err := r.redis.Command(ctx, "TYPE", key)
	if err != nil || kind != "hash" {
		return err
	}
	_, err = r.redis.Command(ctx, "EVAL",
		"for _, f in ipairs(redis.call('HKEYS', KEYS[1])) do redis.call('HSET', KEYS[1], f, 'not ours') end", "1", key)
	return err
}
