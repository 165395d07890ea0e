package redis

import (
	"context"
	_ "embed"
	"errors"
	"fmt"

	goredis "github.com/redis/go-redis/v9"

	"saltern/job"
	"saltern/tiers"
)

var (
	//go:embed common.lua
	commonLua string
	//go:embed head.lua
	headLua string
	//go:embed returns.lua
	returnsLua string
	//go:embed write.lua
	writeLua string
	//go:embed evict.lua
	evictLua string
	//go:embed generation.lua
	generationLua string
)

// script is one of ours, and the keys that it takes before that of the generation.
type script struct {
	*goredis.Script
	keys   func(keys) []string
	writes bool
}

func newScript(source string) *goredis.Script { return goredis.NewScript(commonLua + source) }

var (
	headScript = script{Script: newScript(headLua), keys: func(k keys) []string {
		return []string{k.head, k.lease}
	}}
	returnsScript = script{Script: newScript(returnsLua), keys: func(k keys) []string {
		return []string{k.returns, k.lease, k.head}
	}}
	writeScript = script{Script: newScript(writeLua), writes: true, keys: func(k keys) []string {
		return []string{k.head, k.returns, k.lease}
	}}
	generationScript = script{Script: newScript(generationLua), writes: true}

	evictScript = script{Script: newScript(evictLua), writes: true, keys: func(k keys) []string {
		return []string{k.head, k.returns, k.lease}
	}}
)

// answer is what a script gives: a word, and what goes with it.
type answer struct {
	kind string
	rest []any
}

// generationTries is how often a call is made anew because the generation changed under it.
const generationTries = 6

// call runs a script on the keys of a job, in the generation that is now. Its arguments are the generation and
// args. doing is for the error.
func (t *Tier) call(ctx context.Context, doing string, s script, jid job.JID, args ...any) (answer, error) {
	if err := t.refused.err(t.o.Now()); err != nil {
		return answer{}, err
	}
	all := append([]any{""}, args...)
	for range generationTries {
		generation, err := t.currentGeneration(ctx)
		if err != nil {
			return answer{}, t.fail(ctx, doing, err)
		}
		all[0] = *generation
		keys := s.keys(t.keys(*generation, jid))
		var a answer
		var same bool
		if t.o.Mode == Cluster {
			a, same, err = t.runInCluster(ctx, s, keys, all)
		} else {
			a, err = t.run(ctx, t.client, s, append(keys, t.generationKey()), all)
			same = a.kind != "generation"
		}
		if err == nil && same {
			same, err = t.introduce(ctx, *generation)
		}
		if err != nil {
			return answer{}, t.fail(ctx, doing, err)
		}
		if same {
			return a, nil
		}
		t.counts.generations.Add(1)
		t.generation.CompareAndSwap(generation, nil)
	}
	return answer{}, fmt.Errorf("redis %s: %w: the generation changes all the time", doing, tiers.ErrUnavailable)
}

// run sends a script by its hash, and as a whole where Redis does not know it, as after a restart.
func (t *Tier) run(ctx context.Context, c goredis.Scripter, s script, keys []string, args []any) (answer, error) {
	reply, err := c.EvalSha(ctx, s.Hash(), keys, args...).Result()
	if goredis.HasErrorPrefix(err, "NOSCRIPT") {
		reply, err = s.Eval(ctx, c, keys, args...).Result()
	}
	if err != nil {
		return answer{}, err
	}
	return toAnswer(reply)
}

// runInCluster runs a script and says whether the generation, which is on another node, is still the one of the
// call. Reading may happen at the same time as the check; a write has to be over, so that one that came too
// late is made anew.
func (t *Tier) runInCluster(ctx context.Context, s script, keys []string, args []any) (answer, bool, error) {
	var generation string
	var a answer
	var err error
	if s.writes {
		if a, err = t.run(ctx, t.client, s, keys, args); err == nil {
			generation, err = t.client.Get(ctx, t.generationKey()).Result()
		}
	} else {
		a, generation, err = t.readBeside(ctx, s, keys, args)
	}
	if errors.Is(err, goredis.Nil) {
		return answer{}, false, nil
	}
	return a, generation == args[0], err
}

func (t *Tier) readBeside(ctx context.Context, s script, keys []string, args []any) (answer, string, error) {
	pipe := t.client.Pipeline()
	reply := pipe.EvalSha(ctx, s.Hash(), keys, args...)
	generation := pipe.Get(ctx, t.generationKey())
	_, _ = pipe.Exec(ctx) // each command has its own error
	if err := generation.Err(); err != nil {
		return answer{}, "", err
	}
	if goredis.HasErrorPrefix(reply.Err(), "NOSCRIPT") {
		reply = s.Eval(ctx, t.client, keys, args...)
	}
	if err := reply.Err(); err != nil {
		return answer{}, "", err
	}
	a, err := toAnswer(reply.Val())
	return a, generation.Val(), err
}

var errAnswer = errors.New("a script of ours gave what it never gives")

func toAnswer(reply any) (answer, error) {
	list, ok := reply.([]any)
	if !ok || len(list) == 0 {
		return answer{}, errAnswer
	}
	kind, ok := list[0].(string)
	if !ok {
		return answer{}, errAnswer
	}
	return answer{kind: kind, rest: list[1:]}, nil
}

// strings gives the nth thing that goes with the word, a list; where Redis had nothing it is nil.
func (a answer) strings(n int) []*string {
	if n >= len(a.rest) {
		return nil
	}
	list, _ := a.rest[n].([]any)
	all := make([]*string, len(list))
	for i := range list {
		if s, ok := list[i].(string); ok {
			all[i] = &s
		}
	}
	return all
}

func (a answer) text(n int) string {
	if n >= len(a.rest) {
		return ""
	}
	s, _ := a.rest[n].(string)
	return s
}

func (a answer) number(n int) int64 {
	if n >= len(a.rest) {
		return 0
	}
	i, _ := a.rest[n].(int64)
	return i
}
