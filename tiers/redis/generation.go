package redis

import (
	"context"
	"errors"

	goredis "github.com/redis/go-redis/v9"
)

// currentGeneration is the generation as last seen, or as Redis has it. It may be an old one: scripts find that
// out.
func (t *Tier) currentGeneration(ctx context.Context) (*string, error) {
	if g := t.generation.Load(); g != nil {
		return g, nil
	}
	g, err := t.client.Get(ctx, t.generationKey()).Result()
	if errors.Is(err, goredis.Nil) {
		// An empty Redis, or one that evicted the word: a new one, so that no key of before is read.
		return t.runGeneration(ctx, false, nil)
	}
	if err != nil {
		return nil, err
	}
	t.generation.Store(&g)
	return &g, nil
}

// ForgetAll makes all that is held unreadable, for every client of the namespace: after an outage of which
// it is not known what was missed. What was held stays in Redis until its TTL has passed.
func (t *Tier) ForgetAll(ctx context.Context) error {
	if err := t.refused.err(t.o.Now()); err != nil {
		return err
	}
	_, err := t.runGeneration(ctx, true, nil)
	return t.fail(ctx, "change the generation", err)
}

// runGeneration gives the generation after servers were met; with renew it is a new one.
func (t *Tier) runGeneration(ctx context.Context, renew bool, servers []string) (*string, error) {
	args := []any{"", word()[:4]}
	if renew {
		args[0] = "1"
	}
	for _, s := range servers {
		args = append(args, s)
	}
	a, err := t.run(ctx, t.client, generationScript, []string{t.generationKey(), t.serversKey()}, args)
	if err != nil {
		return nil, err
	}
	g := a.text(0)
	t.generation.Store(&g)
	return &g, nil
}
