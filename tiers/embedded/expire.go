package embedded

import (
	"bytes"
	"context"
	"encoding/binary"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"saltern/job"
)

// expireChunk is how many jobs go at a time; merges wait meanwhile, some 5 ms.
const expireChunk = 1000

// eventsAhead is how far ahead the time of an event is believed.
const eventsAhead = 24 * time.Hour

// expireReserve is the share of the reserve that removing may use: it makes room.
const expireReserve = 0.25

// Expire removes the jobs and events that have passed their time at now.
func (s *Store) Expire(ctx context.Context, now time.Time) (int, error) {
	if !s.expiring.TryLock() {
		return 0, nil
	}
	defer s.expiring.Unlock()
	if err := s.ready(ctx); err != nil {
		return 0, err
	}
	gone := 0
	for _, c := range s.classes.all() {
		keep, forever := c.keep(s.o.DefaultKeep)
		if forever {
			continue
		}
		n, err := s.expireClass(ctx, c, micros(now.Add(-keep)))
		gone += n
		if err != nil {
			return gone, err
		}
	}
	if gone > 0 {
		if err := s.expireLasts(ctx); err != nil {
			return gone, err
		}
	}
	if err := s.expireEvents(now); err != nil {
		return gone, err
	}
	return gone, nil
}

// expireClass removes the jobs of a class whose time is before cutoff.
func (s *Store) expireClass(ctx context.Context, c class, cutoff uint64) (gone int, err error) {
	var from []byte
	for {
		if err := ctx.Err(); err != nil {
			return gone, err
		}
		if err := s.db.Take(expireChunk*64, expireReserve); err != nil {
			return gone, err
		}
		n, next, err := s.expireSome(c, cutoff, from)
		gone += n
		if err != nil || next == nil {
			return gone, err
		}
		from = next
	}
}

// expireSome removes the oldest jobs of a class. No merge is under way meanwhile, so that a range of
// keys has just the jobs whose places are removed with it: a job that comes back, by a late return,
// is either gone as a whole or not touched.
func (s *Store) expireSome(c class, cutoff uint64, from []byte) (n int, next []byte, err error) {
	s.gate.Lock()
	defer s.gate.Unlock()
	start, end := place{c, 0}, place{c, cutoff}
	b := s.db.NewBatch()
	defer b.Close()
	var last job.JID
	lastPlace := start
	lower := summaryKey(start, "")
	if from != nil {
		lower = from
	}
	err = s.scanRange(context.Background(), s.db, lower, summaryKey(end, ""),
		func(key, _ []byte) error {
			if n == expireChunk {
				next = bytes.Clone(key)
				return errStop
			}
			n++
			lastPlace, last = parseSummaryKey(key)
			return b.Delete(placeKey(last), nil)
		})
	if err == nil && n > 0 {
		err = b.DeleteRange(lower, append(summaryKey(lastPlace, last), 0), nil)
	}
	if err == nil && n > 0 {
		err = b.DeleteRange(summaryToData(lower), after(dataPrefix(lastPlace, last)), nil)
	}
	if err == nil && next == nil {
		// All of the class before cutoff is gone; so are then the days of the index before it.
		err = s.removeRange(b, dayKey(c, 0), dayKey(c, cutoff/dayMicros))
	}
	if err == nil && !b.Empty() {
		err = s.commitLater(b)
	}
	if err != nil {
		return 0, nil, unavailable(err)
	}
	return n, next, nil
}

// removeRange removes a range of keys, if there is any key in it: a mark of removal costs later reads
// something.
func (s *Store) removeRange(b *pebble.Batch, lower, upper []byte) error {
	found := false
	err := s.scanRange(context.Background(), s.db, lower, upper, func(_, _ []byte) error {
		found = true
		return errStop
	})
	if err != nil || !found {
		return err
	}
	return b.DeleteRange(lower, upper, nil)
}

// summaryToData is the first key under D of the jobs whose summaries begin at a key.
func summaryToData(key []byte) []byte {
	p, jid := parseSummaryKey(key)
	if jid == "" {
		return p.append([]byte{tabData})
	}
	return dataPrefix(p, jid)
}

// expireLasts gives each minion whose last job is gone its last function of those that are left.
func (s *Store) expireLasts(ctx context.Context) error {
	snap := s.db.NewSnapshot()
	defer snap.Close()
	var lost []job.LastFunction
	err := s.scan(ctx, snap, []byte{tabMinion}, func(key, value []byte) error {
		l, err := decodeLast(job.Minion(key[1:]), value)
		if err != nil {
			s.dropCorrupt(tabMinion, "", err)
			return nil
		}
		there, err := s.has(snap, placeKey(l.JID))
		if !there && err == nil {
			lost = append(lost, l)
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, l := range lost {
		if err := s.expireLast(ctx, l); err != nil {
			return err
		}
	}
	return nil
}

// expireLast replaces the last function of a minion, unless it ran something meanwhile.
func (s *Store) expireLast(ctx context.Context, lost job.LastFunction) error {
	s.gate.Lock()
	defer s.gate.Unlock()
	stored, found, err := s.last(s.db, lost.Minion)
	if err != nil || !found || stored.JID != lost.JID {
		return err
	}
	if back, err := s.has(s.db, placeKey(lost.JID)); back || err != nil {
		return err
	}
	left, found, err := s.lastOfJobs(ctx, lost.Minion)
	if err != nil {
		return err
	}
	b := s.db.NewBatch()
	defer b.Close()
	err = b.Delete(functionKey(stored.Fun, lost.Minion), nil)
	switch {
	case err != nil:
	case !found:
		err = b.Delete(minionKey(lost.Minion), nil)
	default:
		left.Seen = stored.Seen
		err = b.Set(minionKey(lost.Minion), encodeLast(left), nil)
		if err == nil {
			err = b.Set(functionKey(left.Fun, lost.Minion), nil, nil)
		}
	}
	if err == nil {
		err = s.commitLater(b)
	}
	if err != nil {
		return unavailable(err)
	}
	return nil
}

// lastOfJobs makes the last function of a minion from the newest job that has a return of it; of
// several of one time, as MergeLastFunction decides.
func (s *Store) lastOfJobs(
	ctx context.Context, m job.Minion,
) (last job.LastFunction, found bool, err error) {
	l := &listing{s: s, r: s.db, before: position{time: 1<<64 - 1}}
	l.f.Minion = m
	src, err := l.sources(ctx)
	if err != nil {
		return last, false, err
	}
	for c := src.newest(); c != nil && err == nil; c = src.newest() {
		if found && c.at.time != micros(last.JobTime) {
			break
		}
		l, is, rerr := s.lastOf(m, c)
		switch {
		case rerr != nil:
			err = rerr
		case is && found:
			last = job.MergeLastFunction(last, l)
		case is:
			last, found = l, true
		}
		src.advance(c)
	}
	if cerr := src.close(); cerr != nil && err == nil {
		err = unavailable(cerr)
	}
	return last, found, err
}

// lastOf is what a minion's return of one job says of its last function.
func (s *Store) lastOf(m job.Minion, c *candidate) (job.LastFunction, bool, error) {
	key := minionDataKey(dataPrefix(place{c.class, c.at.time}, c.at.jid), kindReturn, m)
	ret, found, _, err := getFact[job.Return](s, s.db, key, kindReturn, c.at.jid)
	return job.LastFunction{
		Minion: m, Fun: ret.Fun, JID: c.at.jid, JobTime: microsTime(c.at.time), Version: ret.Version,
		Failed: ret.Failed,
	}, found, err
}

// removeAhead removes events whose own time lies ahead, as a wrong clock or an enemy makes it: they
// age from when they came.
func (s *Store) removeAhead(b *pebble.Batch, now time.Time) error {
	n := 0
	ahead := binary.BigEndian.AppendUint64([]byte{tabEvent}, micros(now.Add(eventsAhead)))
	return s.scanRange(context.Background(), s.db, ahead, []byte{tabEvent + 1},
		func(key, value []byte) error {
			if n++; n > expireChunk {
				return errStop // the next call goes on
			}
			e, ok := decodeFact[job.Event](s, tabEvent, "", value)
			if ok && e.Version.Time().Add(s.o.EventKeep).After(now) {
				return nil
			}
			if err := b.Delete(tagKey(parseEventRef(key[1:]), e.Tag), nil); err != nil {
				return err
			}
			return b.Delete(bytes.Clone(key), nil)
		})
}

// expireEvents removes the events that are too old, and their tags: of those a last bucket stays
// until the next time.
func (s *Store) expireEvents(now time.Time) error {
	cutoff := micros(now.Add(-s.o.EventKeep))
	if err := s.db.Take(4096, expireReserve); err != nil {
		return err
	}
	b := s.db.NewBatch()
	defer b.Close()
	err := s.removeRange(b, []byte{tabEvent}, binary.BigEndian.AppendUint64([]byte{tabEvent}, cutoff))
	if err == nil {
		err = s.removeRange(b, []byte{tabTag}, bucketKey(cutoff/bucketMicros))
	}
	if err == nil {
		err = s.removeAhead(b, now)
	}
	if err == nil && !b.Empty() {
		err = s.commitLater(b)
	}
	if err != nil {
		return unavailable(err)
	}
	return nil
}
