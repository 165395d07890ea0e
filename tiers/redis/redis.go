package redis

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"

	goredis "github.com/redis/go-redis/v9"

	"saltern/job"
	"saltern/tiers"
)

// Tier is a tiers.Tier and a tiers.Filler.
type Tier struct {
	o      Options
	client goredis.UniversalClient
	log    *slog.Logger
	prefix string

	// generation is the word that was last seen; nil before the first call.
	generation atomic.Pointer[string]
	servers    servers
	refused    refusal
	names      nameCache
	counts     counts
}

var (
	_ tiers.Tier      = (*Tier)(nil)
	_ tiers.Filler    = (*Tier)(nil)
	_ tiers.Forgetter = (*Tier)(nil)
	_ tiers.Reserver  = (*Tier)(nil)
)

// New makes a tier. It connects when it is first asked: a Redis that is away is no error here.
func New(o Options) (*Tier, error) {
	if err := o.setDefaults(); err != nil {
		return nil, err
	}
	t := &Tier{o: o, log: o.Logger.With("tier", "redis"), prefix: o.KeyPrefix + ":" + o.Namespace + ":"}
	var err error
	t.client, err = o.newClient(t.servers.meet)
	if err != nil {
		return nil, err
	}
	return t, nil
}

// Name is "redis".
func (t *Tier) Name() string { return "redis" }

// Close closes the connections.
func (t *Tier) Close() error { return t.client.Close() }

// Client is the client itself, for what else is kept in the same Redis. It closes with the tier.
func (t *Tier) Client() goredis.UniversalClient { return t.client }

// Ping says whether Redis can be asked, and if not, why.
func (t *Tier) Ping(ctx context.Context) error {
	return t.fail(ctx, "ping", t.client.Ping(ctx).Err())
}

// reserveFor is well above what the clocks of two masters differ by.
const reserveFor = 24 * 60 * 60 // seconds

// Reserve takes a jid for its caller and says whether nobody has taken it in the last day, at any master of the
// namespace. An error leaves it unknown.
func (t *Tier) Reserve(ctx context.Context, jid job.JID) (bool, error) {
	if err := t.refused.err(t.o.Now()); err != nil {
		return false, err
	}
	err := t.client.Do(ctx, "SET", t.reservationKey(jid), "1", "NX", "EX", reserveFor).Err()
	if errors.Is(err, goredis.Nil) {
		return false, nil
	}
	return err == nil, t.fail(ctx, "reserve a jid", err)
}
