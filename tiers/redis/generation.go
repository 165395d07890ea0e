package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"

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
		if g, err = t.newGeneration(ctx); err == nil {
			err = t.client.SetNX(ctx, t.generationKey(), g, 0).Err()
		}
		if err == nil {
			g, err = t.client.Get(ctx, t.generationKey()).Result()
		}
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
	g, err := t.newGeneration(ctx)
	if err == nil {
		err = t.client.Set(ctx, t.generationKey(), g, 0).Err()
	}
	if err != nil {
		return t.fail(ctx, "change the generation", err)
	}
	t.generation.Store(&g)
	return nil
}

// newGeneration makes a word of the time, by which scripts know its age, and of chance.
func (t *Tier) newGeneration(ctx context.Context) (string, error) {
	now, err := t.client.Time(ctx).Result()
	return fmt.Sprintf("%08s%s", strconv.FormatInt(now.UnixMilli(), 36), word()[:4]), err
}
