package move

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"saltern/job"
)

// Redis reads the keys of Salt's redis returner (salt/returners/redis_return.py): load:JID has the load, the
// hash ret:JID a field a minion with the whole return, both as JSON.
type Redis struct{ client *redis.Client }

// OpenRedis takes redis://, rediss:// or unix:// and connects when it is read.
func OpenRedis(url string) (*Redis, error) {
	o, err := redis.ParseURL(url)
	if err != nil {
		// The error could have the password in it.
		return nil, errors.New("no URL of a Redis: redis://[USER:PASSWORD@]HOST:PORT/DB, rediss:// with TLS, or unix://PATH?db=N is needed")
	}
	return &Redis{client: redis.NewClient(o)}, nil
}

// Close closes the connections.
func (r *Redis) Close() error { return r.client.Close() }

const (
	loadPrefix = "load:"
	retPrefix  = "ret:"
	scanCount  = 500
)

// Each implements Source: all loads with their returns, then the returns of jobs without a load. A cursor is
// the prefix and the cursor of SCAN, which a Redis takes also after a break.
func (r *Redis) Each(ctx context.Context, o Options, take func(Item) error) error {
	prefix, from := loadPrefix, uint64(0)
	if o.After != "" {
		p, n, _ := strings.Cut(o.After, ":")
		var err error
		if from, err = strconv.ParseUint(n, 10, 64); err != nil || (p != "load" && p != "ret") {
			return fmt.Errorf("%q is no place in a Redis", o.After)
		}
		prefix = p + ":"
	}
	if prefix == loadPrefix {
		if err := r.scan(ctx, loadPrefix, from, o, take, r.job); err != nil {
			return err
		}
		from = 0
	}
	return r.scan(ctx, retPrefix, from, o, take, r.orphan)
}

type readJob func(ctx context.Context, jid job.JID, o Options, p *part) error

func (r *Redis) scan(ctx context.Context, prefix string, cursor uint64, o Options, take func(Item) error, read readJob) error {
	p := &part{take: take}
	for {
		keys, next, err := r.client.Scan(ctx, cursor, prefix+"*", scanCount).Result()
		if err != nil {
			return err
		}
		for _, key := range keys {
			jid := job.JID(strings.TrimPrefix(key, prefix))
			if !validID(string(jid), job.MaxJIDBytes) {
				o.Bad(strconv.Quote(key), errors.New("no jid"))
				continue
			}
			if err := read(ctx, jid, o, p); err != nil {
				return err
			}
			if err := p.flush(""); err != nil {
				return err
			}
		}
		if cursor = next; cursor == 0 {
			return nil
		}
		if err := p.flush(prefix + strconv.FormatUint(cursor, 10)); err != nil {
			return err
		}
	}
}

func (r *Redis) job(ctx context.Context, jid job.JID, o Options, p *part) error {
	key := loadPrefix + string(jid)
	value, err := r.client.Get(ctx, key).Result()
	if errors.Is(err, redis.Nil) {
		return nil // it has passed its time meanwhile
	}
	if err != nil {
		return wrongType(key, err, o)
	}
	fun, err := addLoad(p, key, jid, value, o)
	if err != nil {
		return err
	}
	return r.returns(ctx, jid, fun, o, p)
}

// addLoad adds a load that is JSON, and gives its function. What is wrong with it is told to Bad.
func addLoad(p *part, where string, jid job.JID, value string, o Options) (fun string, err error) {
	packed, surrogates, err := fromJSON(value)
	if err != nil {
		o.Bad(where, err)
		return "", nil
	}
	l, err := loadOf(jid, packed, false, timeOf(jid, time.Now()), o)
	if err != nil {
		o.Bad(where, err)
		return "", nil
	}
	l.Surrogates = surrogates
	return l.Fun, p.add(l)
}

// orphan reads the returns of a job that has no load; the others were read with it.
func (r *Redis) orphan(ctx context.Context, jid job.JID, o Options, p *part) error {
	n, err := r.client.Exists(ctx, loadPrefix+string(jid)).Result()
	if err != nil || n > 0 {
		return err
	}
	return r.returns(ctx, jid, "", o, p)
}

func (r *Redis) returns(ctx context.Context, jid job.JID, fun string, o Options, p *part) error {
	key, cursor := retPrefix+string(jid), uint64(0)
	for {
		pairs, next, err := r.client.HScan(ctx, key, cursor, "", scanCount).Result()
		if err != nil {
			return wrongType(key, err, o)
		}
		for i := 0; i+1 < len(pairs); i += 2 {
			if err := addReturn(p, key+" "+strconv.Quote(pairs[i]), jid, pairs[i], pairs[i+1], fun, timeOf(jid, time.Now()), o); err != nil {
				return err
			}
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// addReturn adds a return that is JSON. What is wrong with it is told to Bad.
func addReturn(p *part, where string, jid job.JID, minion, value, fun string, at time.Time, o Options) error {
	packed, surrogates, err := fromJSON(value)
	if err == nil && !validID(minion, job.MaxMinionBytes) {
		err = errors.New("no id of a minion")
	}
	if err != nil {
		o.Bad(where, err)
		return nil
	}
	ret, err := returnOf(jid, job.Minion(minion), packed, fun, stampOf(packed, at), o)
	if err != nil {
		o.Bad(where, err)
		return nil
	}
	ret.Surrogates = surrogates
	return p.add(ret)
}

// wrongType tells Bad of a key that is none of the returner's, and gives every other error back.
func wrongType(key string, err error, o Options) error {
	if redis.HasErrorPrefix(err, "WRONGTYPE") {
		o.Bad(strconv.Quote(key), errors.New("of another type than the returner's"))
		return nil
	}
	return err
}
