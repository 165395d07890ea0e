package cli

import (
	"time"

	"saltern/policy"
	"saltern/proxy"
	"saltern/proxy/backplane"
	"saltern/proxy/journal"
	"saltern/telemetry"
	"saltern/tiers/cassandra"
	"saltern/tiers/memory"
	"saltern/tiers/redis"
)

// The parts of the daemon count for themselves and know no metrics; here is what each count is called.
// docs/metrics.md has the list, which a test compares.

type emit = func(value float64, labels ...string)

func counter(name, help string, read func() uint64) telemetry.Source {
	return telemetry.Source{Name: name, Help: help, Read: func(e emit) { e(float64(read())) }}
}

func gauge(name, help string, read func() float64) telemetry.Source {
	return telemetry.Source{Name: name, Help: help, Gauge: true, Read: func(e emit) { e(read()) }}
}

func memorySources(c *memory.Cache, most int64) []telemetry.Source {
	return []telemetry.Source{
		gauge("saltern_memory_bytes", "Bytes that the cache in memory holds.",
			func() float64 { return float64(c.Stats().Bytes) }),
		gauge("saltern_memory_max_bytes", "The bound of saltern_memory_bytes: memory.max-bytes.",
			func() float64 { return float64(most) }),
		gauge("saltern_memory_entries", "Jobs that the cache in memory holds.",
			func() float64 { return float64(c.Stats().Entries) }),
		{
			Name: "saltern_memory_removed_total", Labels: []string{"why"},
			Help: "Jobs that left the cache in memory: evicted for room, expired, or rejected when they came.",
			Read: func(e emit) {
				s := c.Stats()
				e(float64(s.Evicted), "evicted")
				e(float64(s.Expired), "expired")
				e(float64(s.Rejected), "rejected")
			},
		},
	}
}

func proxySources(p *proxy.Proxy) []telemetry.Source {
	s := &p.Stats
	return []telemetry.Source{
		{
			Name: "saltern_tier_answers_total", Labels: []string{"tier", "op", "answer"},
			Help: "Answers of a tier to an operation: hit, miss, absent (there is no such job), error, open (breaker), timeout, skipped.",
			Read: func(e emit) {
				s.Each(func(tier string, op telemetry.Op, a proxy.Answer, n uint64) {
					e(float64(n), tier, op.String(), a.String())
				})
			},
		},
		counter("saltern_reads_coalesced_total", "Reads that joined another of the same job.", s.Coalesced.Load),
		counter("saltern_reads_stale_total", "Reads answered with what may be old, as no tier could be asked.", s.Stale.Load),
		counter("saltern_backfills_dropped_total", "Fills of a shared tier that found the queue full.", s.BackfillDropped.Load),
		counter("saltern_writes_total", "Writes that were acknowledged.", s.Writes.Load),
		counter("saltern_write_errors_total", "Writes that were not.", s.WriteErrors.Load),
		counter("saltern_missed_facts_total", "Facts that a shared tier did not get; their jobs are removed from it.", s.MissedFacts.Load),
		counter("saltern_local_jids_total", "Jids of which neither a shared tier nor the store could say that nobody has them.", s.LocalJIDs.Load),
	}
}

func breakerSources(guarded []*proxy.Guarded) []telemetry.Source {
	return []telemetry.Source{{
		Name: "saltern_breaker_state", Gauge: true, Labels: []string{"tier", "calls", "state"},
		Help: "1 for the state that a breaker is in, 0 for the others.",
		Read: func(e emit) {
			for _, g := range guarded {
				read, write, list := g.States()
				for calls, state := range map[string]policy.BreakerState{"read": read, "write": write, "list": list} {
					for _, s := range []policy.BreakerState{policy.Closed, policy.Open, policy.Probing} {
						is := 0.0
						if s == state {
							is = 1
						}
						e(is, g.Name(), calls, s.String())
					}
				}
			}
		},
	}}
}

func journalSources(j *journal.Store) []telemetry.Source {
	of := func(f func(journal.Status) float64) func() float64 {
		return func() float64 { return f(j.Status()) }
	}
	return []telemetry.Source{
		gauge("saltern_journal_entries", "Entries of the journal that wait for the store.",
			of(func(s journal.Status) float64 { return float64(s.Entries) })),
		gauge("saltern_journal_facts", "Facts in the entries that wait.",
			of(func(s journal.Status) float64 { return float64(s.Facts) })),
		gauge("saltern_journal_bytes", "Bytes of the journal, with entries that the store has confirmed lately.",
			of(func(s journal.Status) float64 { return float64(s.Bytes) })),
		gauge("saltern_journal_quota_bytes", "The bound of saltern_journal_bytes: journal.quota.",
			of(func(s journal.Status) float64 { return float64(s.Quota) })),
		gauge("saltern_journal_oldest_seconds", "Age of the oldest entry that waits, 0 when none does.",
			of(func(s journal.Status) float64 {
				if s.Oldest.IsZero() {
					return 0
				}
				return time.Since(s.Oldest).Seconds()
			})),
		gauge("saltern_journal_replay_facts_per_second", "Facts a second of the last writes of the replay.",
			of(func(s journal.Status) float64 { return float64(s.Rate) })),
		gauge("saltern_journal_dead_entries", "Entries that the store will never take.",
			of(func(s journal.Status) float64 { return float64(s.Dead) })),
		counter("saltern_journal_replayed_facts_total", "Facts that the replay brought to the store.",
			func() uint64 { return j.Status().Replayed }),
		counter("saltern_journal_degraded_reads_total", "Reads answered from the journal alone.",
			func() uint64 { return j.Status().Degraded }),
		{
			Name: "saltern_write_acks_total", Labels: []string{"by"},
			Help: "Writes that were acknowledged, by what: the store, or the journal alone.",
			Read: func(e emit) {
				s := j.Status()
				e(float64(s.ByStore), "store")
				e(float64(s.ByLog), "journal")
			},
		},
	}
}

func redisSources(t *redis.Tier) []telemetry.Source {
	pool := func(name, help string, f func(redis.Stats) uint32) telemetry.Source {
		return counter(name, help, func() uint64 { return uint64(f(t.Stats())) })
	}
	return []telemetry.Source{
		{
			Name: "saltern_redis_fills_total", Labels: []string{"result"},
			Help: "Fills of Redis: taken, or declined as they came too late or were too large.",
			Read: func(e emit) {
				s := t.Stats()
				e(float64(s.Fills), "taken")
				e(float64(s.Declined), "declined")
			},
		},
		{
			Name: "saltern_redis_errors_total", Labels: []string{"class"}, Help: "Calls of Redis that failed, by class.",
			Read: func(e emit) {
				for class, n := range t.Stats().Errors {
					e(float64(n), string(class))
				}
			},
		},
		counter("saltern_redis_corrupt_total", "Values in Redis that could not be read; their jobs were deleted there.",
			func() uint64 { return t.Stats().Corrupt }),
		counter("saltern_redis_generations_total", "How often another key generation than the known one was met.",
			func() uint64 { return t.Stats().Generations }),
		{
			Name: "saltern_redis_connections", Gauge: true, Labels: []string{"state"}, Help: "Connections to Redis: idle or busy.",
			Read: func(e emit) {
				s := t.Stats().Pool
				e(float64(s.IdleConns), "idle")
				e(float64(s.TotalConns-min(s.IdleConns, s.TotalConns)), "busy")
			},
		},
		pool("saltern_redis_pool_hits_total", "Calls that found a free connection.",
			func(s redis.Stats) uint32 { return s.Pool.Hits }),
		pool("saltern_redis_pool_misses_total", "Calls that had to make a connection or wait for one.",
			func(s redis.Stats) uint32 { return s.Pool.Misses }),
		pool("saltern_redis_pool_timeouts_total", "Calls that found no connection in time.",
			func(s redis.Stats) uint32 { return s.Pool.Timeouts }),
		pool("saltern_redis_pool_stale_total", "Connections that were given up.",
			func(s redis.Stats) uint32 { return s.Pool.StaleConns }),
	}
}

func backplaneSources(b *backplane.Backplane) []telemetry.Source {
	return []telemetry.Source{
		{
			Name: "saltern_backplane_entries_total", Labels: []string{"kind"},
			Help: "Entries of the backplane, beats included: sent, received, or malformed.",
			Read: func(e emit) {
				s := b.Stats()
				e(float64(s.Published), "sent")
				e(float64(s.Received), "received")
				e(float64(s.Malformed), "malformed")
			},
		},
		counter("saltern_backplane_evicted_total", "Jobs that the daemons of other masters wrote to.",
			func() uint64 { return b.Stats().Evicted }),
		counter("saltern_backplane_gaps_total", "Gaps after which all that is held may be old.",
			func() uint64 { return b.Stats().Gaps }),
		gauge("saltern_backplane_lag_seconds", "How long ago the last entry was sent that came back: its delay.",
			func() float64 { return b.Stats().Lag.Seconds() }),
	}
}

func cassandraSources(c *cassandra.Store) []telemetry.Source {
	split := func(name, help string, f func(cassandra.Stats, emit)) telemetry.Source {
		return telemetry.Source{Name: name, Help: help, Labels: []string{"kind"},
			Read: func(e emit) { f(c.Stats(), e) }}
	}
	return []telemetry.Source{
		gauge("saltern_cassandra_up", "1 when there is a session with Cassandra.", func() float64 {
			if c.Stats().Up {
				return 1
			}
			return 0
		}),
		split("saltern_cassandra_requests_total", "Requests that the driver sent, retries among them: query or batch.",
			func(s cassandra.Stats, e emit) {
				e(float64(s.Queries), "query")
				e(float64(s.Batches), "batch")
			}),
		split("saltern_cassandra_request_errors_total", "Requests that failed: query or batch.",
			func(s cassandra.Stats, e emit) {
				e(float64(s.QueryErrors), "query")
				e(float64(s.BatchErrors), "batch")
			}),
		counter("saltern_cassandra_retries_total", "Requests that were sent again.",
			func() uint64 { return c.Stats().Retries }),
		counter("saltern_cassandra_timeouts_total", "Requests that the driver gave up.",
			func() uint64 { return c.Stats().Timeouts }),
		counter("saltern_cassandra_connects_total", "Connections that were made or tried.",
			func() uint64 { return c.Stats().Connects }),
		counter("saltern_cassandra_connect_errors_total", "Connections that could not be made.",
			func() uint64 { return c.Stats().ConnectErrors }),
		counter("saltern_cassandra_corrupt_total", "Stored values that could not be read and count as missing.",
			func() uint64 { return c.Stats().Corrupt }),
	}
}
