// Package move reads what other job stores of Salt keep, as facts, and writes local_cache's folder.
// It asks no Saltern: its readers give facts, and cli hands them to the daemon.
//
// What is read is left as it is: payloads that are MessagePack already (local_cache) are never
// decoded and encoded again, and JSON (redis, cassandra_cql) becomes what Python would make of it.
package move

import (
	"context"
	"time"

	"saltern/job"
)

// Item is a job as another store has it, or a part of a large one, or events.
type Item struct {
	// Facts have the time at which they came there as their version; see Version.
	Facts []job.Fact
	// Cursor is what to begin after in order to go on behind this item; empty inside a job.
	Cursor string
}

// Options of a reader.
type Options struct {
	// After is the Cursor of the last item that need not be read again, empty for the beginning.
	After string
	// Keep is how long jobs are kept, in seconds after their time, as for Salt's keep_jobs_seconds.
	Keep job.Keep
	// Master is the id of the master whose jobs they are; empty for the daemon's own.
	Master string
	// Bad is told of what could not be read, and why. It holds no payload.
	Bad func(where string, err error)
}

// Source is a store of another kind.
type Source interface {
	// Each gives every job of the store to take, in the order of the store. What cannot be read is
	// told to Bad and passed over; an error means that there is more and it cannot be read now.
	// Facts of a large job come in several items.
	Each(ctx context.Context, o Options, take func(Item) error) error
	Close() error
}

// partBytes bounds the payload of an item, but for its last fact.
const partBytes = 1 << 20

// part collects facts of one job and hands them on when they have become many bytes.
type part struct {
	take  func(Item) error
	facts []job.Fact
	bytes int
}

func (p *part) add(facts ...job.Fact) error {
	for _, f := range facts {
		p.facts = append(p.facts, f)
		if p.bytes += f.Size(); p.bytes >= partBytes {
			if err := p.flush(""); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *part) flush(cursor string) error {
	if len(p.facts) == 0 && cursor == "" {
		return nil
	}
	item := Item{Facts: p.facts, Cursor: cursor}
	p.facts, p.bytes = nil, 0
	return p.take(item)
}

// Version is the version of a fact that came at a time: the oldest one of that millisecond, so that
// whatever Saltern itself was given is newer.
func Version(at time.Time) job.Version { return max(1, job.VersionAt(at)) }

// Expired says whether a job has passed its time already.
func Expired(jid job.JID, keep job.Keep, now time.Time) bool {
	at, ok := jid.Time()
	return ok && keep > 0 && at.Add(time.Duration(keep)*time.Second).Before(now)
}
