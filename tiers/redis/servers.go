package redis

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	goredis "github.com/redis/go-redis/v9"
)

// servers are those that were connected to, by the id that each run of one has. A server that nobody has met
// makes a new generation: see generation.lua.
type servers struct {
	pending atomic.Bool // met is not empty

	mu    sync.Mutex // guards the rest
	known map[string]bool
	met   map[string]bool // not yet known to the namespace
}

// meet is called for each new connection, before any command of ours. It says only who is there: what is to be
// done about it is done after the command, in call, and the command is then made anew.
func (s *servers) meet(ctx context.Context, conn *goredis.Conn) error {
	info, err := conn.Info(ctx, "server").Result()
	if err != nil {
		return err
	}
	id := infoField(info, "run_id")
	if id == "" || infoField(info, "redis_mode") == "sentinel" {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known[id] {
		return nil
	}
	if s.met == nil {
		s.met = make(map[string]bool)
	}
	s.met[id] = true
	s.pending.Store(true)
	return nil
}

func infoField(info, name string) string {
	for line := range strings.Lines(info) {
		if value, is := strings.CutPrefix(line, name+":"); is {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// introduce makes the servers that were met known to the namespace, and says whether the generation is still the
// one given. With none it is asked too: another call may have met the server that answered, and be done with it.
func (t *Tier) introduce(ctx context.Context, generation string) (same bool, err error) {
	s := &t.servers
	if !s.pending.Load() {
		now := t.generation.Load()
		return now != nil && *now == generation, nil
	}
	if cluster, is := t.client.(*goredis.ClusterClient); is && s.none() {
		// All at once: each that came later would make a new generation. One that is away will.
		_ = cluster.ForEachMaster(ctx, func(ctx context.Context, node *goredis.Client) error {
			return node.Ping(ctx).Err()
		})
	}
	s.mu.Lock()
	ids := slices.Collect(maps.Keys(s.met))
	s.mu.Unlock()
	now, err := t.runGeneration(ctx, false, ids)
	if err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil {
		s.known = make(map[string]bool)
	}
	for _, id := range ids {
		s.known[id] = true
		delete(s.met, id)
	}
	s.pending.Store(len(s.met) > 0)
	return *now == generation, nil
}

// none says whether no server is known yet.
func (s *servers) none() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.known) == 0
}
