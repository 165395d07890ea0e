package redis

import (
	"context"
	"errors"
	"strconv"

	goredis "github.com/redis/go-redis/v9"

	"saltern/job"
	"saltern/tiers"
)

var _ tiers.Peeker = (*Tier)(nil)

// ownFields is how many fields of the hash of returns are the hash's own.
const ownFields = 2

// Peek says what is held of a job in the generation that is known.
func (t *Tier) Peek(ctx context.Context, jid job.JID) (tiers.Peek, error) {
	generation, err := t.currentGeneration(ctx)
	if err != nil {
		return tiers.Peek{}, t.fail(ctx, "peek", err)
	}
	k := t.keys(*generation, jid)
	var complete, absent, load, payload *goredis.StringCmd
	var ttl *goredis.DurationCmd
	var returns *goredis.IntCmd
	_, err = t.client.Pipelined(ctx, func(p goredis.Pipeliner) error {
		complete, absent, load = p.HGet(ctx, k.head, fieldComplete), p.HGet(ctx, k.head, fieldAbsent), p.HGet(ctx, k.head, fieldLoad)
		ttl, returns = p.PTTL(ctx, k.head), p.HLen(ctx, k.returns)
		payload = p.HGet(ctx, k.returns, "\x00b")
		return nil
	})
	if err != nil && !errors.Is(err, goredis.Nil) {
		return tiers.Peek{}, t.fail(ctx, "peek", err)
	}
	p := tiers.Peek{Held: complete.Val() == layout, Absent: absent.Val() == layout, TTL: max(ttl.Val(), 0), Returns: -1}
	if value := load.Val(); p.Held && value != "" {
		l, err := openValue[job.Load](value, jid)
		if err != nil {
			return tiers.Peek{}, err
		}
		p.Version = l.Version
	}
	if n := int(returns.Val()) - ownFields; p.Held && n >= 0 {
		p.Returns = n
		p.Bytes, _ = strconv.ParseInt(payload.Val(), 10, 64)
	}
	return p, nil
}
