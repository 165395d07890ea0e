package cassandra

import (
	"encoding/binary"
	"time"

	"github.com/cespare/xxhash/v2"

	"saltern/job"
)

// arrived writes what goes with every fact of a job: its birth, once, and its row in the list of its day, once and
// again when it changed after a while (see summary.go).
func (w *writing) arrived(j *knownJob, jid job.JID, at time.Time, l life, v job.Version) {
	now := w.s.o.Now()
	j.mu.Lock()
	born := j.born && j.bornClass >= l.class
	marked := j.changedClass >= l.class && now.Sub(j.changed) < markEvery
	j.mu.Unlock()
	if !born {
		w.headRow(jid, v, headBirth, string(binary.BigEndian.AppendUint16(
			binary.BigEndian.AppendUint64(nil, uint64(at.UnixMicro())), uint16(l.class))), nil, l.ttl)
		w.day(kindJobs, dayOf(at), l)
	}
	if !marked {
		w.mark(jid, at, l, now)
	}
	if born && marked {
		return
	}
	w.acknowledged = append(w.acknowledged, func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.born, j.bornClass = true, max(j.bornClass, l.class)
		if !marked {
			j.changed, j.changedClass = now, max(j.changedClass, l.class)
		}
	})
}

// jobShards and minionShards are the partitions of a day, lastShards those of all minions. A million jobs a day are
// 125,000 rows a partition; a million minions 250,000. Few are better for writing: more rows share a batch.
const (
	jobShards    = 8
	minionShards = 64
	lastShards   = 4
)

func shard(key string, n uint64) int16 { return int16(xxhash.Sum64String(key) % n) }

func (w *writing) mark(jid job.JID, at time.Time, l life, now time.Time) {
	day, n := dayOf(at), shard(string(jid), jobShards)
	w.add(partition("d", day.Unix(), n), len(jid), insertMark,
		day, n, at.UnixMicro(), string(jid), int16(l.class), now.UnixMicro(), l.ttl, now.UnixMicro())
}

func (w *writing) minionJob(jid job.JID, id job.Minion, at time.Time, l life, v job.Version) {
	day, n := dayOf(at), shard(string(id), minionShards)
	w.add(partition("m", day.Unix(), n), len(jid)+len(id), insertMinionJob,
		day, n, string(id), at.UnixMicro(), string(jid), int16(l.class), l.ttl, stamp(v))
}

func partition(table string, a int64, b int16) string {
	return string(binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint64([]byte(table), uint64(a)), uint16(b)))
}

// Kinds of days.
const (
	kindJobs   = "jobs"
	kindEvents = "events"
)

type dayKey struct {
	kind  string
	day   int64
	class int
}

// day notes that a day has jobs or events of a class, once for this process.
func (w *writing) day(kind string, day time.Time, l life) {
	key := dayKey{kind, day.Unix(), l.class}
	if _, noted := w.s.days.get(key); noted {
		return
	}
	w.add("y"+kind, 0, insertDay, kind, day, int16(l.class), w.s.wholeDay(day, l), w.s.o.Now().UnixMicro())
	w.acknowledged = append(w.acknowledged, func() { w.s.days.put(key, struct{}{}) })
}
