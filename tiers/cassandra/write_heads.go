package cassandra

import (
	"encoding/binary"
	"hash/fnv"

	"github.com/cespare/xxhash/v2"

	"saltern/job"
)

// Kinds of rows in heads.
const (
	headLoad    = 1 // named by rank
	headMinions = 2 // by the hash of the list
	headEndTime = 3
	headNoCache = 4 // by version
	headBirth   = 5 // by time and class
)

type headKey struct {
	jid  job.JID
	kind int8
	name string
}

// head writes a row of heads, and what every fact of a job brings with it.
func (w *writing) head(jid job.JID, v job.Version, kind int8, name string, data []byte) error {
	j, at, life, err := w.job(jid, v)
	if err != nil {
		return err
	}
	w.headRow(jid, v, kind, name, data, life.ttl)
	w.arrived(j, jid, at, life, v)
	return nil
}

func (w *writing) headRow(jid job.JID, v job.Version, kind int8, name string, data []byte, ttl int) {
	if data == nil {
		data = []byte{}
	}
	w.add("h"+string(jid), len(data)+len(jid), insertHead, string(jid), kind, name, data, ttl, stamp(v))
	if w.written == nil {
		w.written = make(map[headKey]int64)
	}
	key := headKey{jid, kind, name}
	w.written[key] = max(w.written[key], stamp(v))
}

func (w *writing) load(f job.Load) error {
	j, at, life, err := w.job(f.JID, f.Version)
	if err != nil {
		return err
	}
	w.arrived(j, f.JID, at, life, f.Version)
	j.mu.Lock()
	beaten := j.rank > f.Rank
	j.mu.Unlock()
	if beaten {
		// Salt sends a load with every return: it loses against the publish, which is stored.
		return nil
	}
	name := string([]byte{byte(f.Rank)})
	cell, err := w.s.pack(w.ctx, place{"job/" + string(f.JID), "load/" + name, f.Version}, job.Encode(f), inlineRow, life.ttl,
		func() []byte { h := f; h.Payload = nil; return job.Encode(h) }, len(f.Payload))
	if err != nil {
		return err
	}
	w.headRow(f.JID, f.Version, headLoad, name, cell, life.ttl)
	w.acknowledged = append(w.acknowledged, func() {
		j.mu.Lock()
		j.rank = max(j.rank, f.Rank)
		j.mu.Unlock()
	})
	return nil
}

func (w *writing) minions(f job.Minions) error {
	f.IDs = job.UnionMinions(f.IDs)
	j, at, life, err := w.job(f.JID, f.Version)
	if err != nil {
		return err
	}
	h := fnv.New128a()
	for _, id := range append([]job.Minion{job.Minion(f.Syndic)}, f.IDs...) {
		h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(id))))
		h.Write([]byte(id))
	}
	name := string(h.Sum(nil))
	cell, err := w.s.pack(w.ctx, place{"job/" + string(f.JID), "minions/" + name, f.Version}, job.Encode(f), inlineRow, life.ttl,
		func() []byte { return nil }, 0)
	if err != nil {
		return err
	}
	w.headRow(f.JID, f.Version, headMinions, name, cell, life.ttl)
	w.arrived(j, f.JID, at, life, f.Version)
	hashes := make([]uint64, len(f.IDs))
	for i, id := range f.IDs {
		hashes[i] = xxhash.Sum64String(string(id))
		w.minionJob(f.JID, id, at, life, f.Version)
	}
	w.acknowledged = append(w.acknowledged, func() {
		j.mu.Lock()
		j.list(hashes, life.class)
		j.mu.Unlock()
	})
	return nil
}

func (w *writing) noCache(f job.NoCache) error {
	j, _, life, err := w.job(f.JID, f.Version)
	if err != nil {
		return err
	}
	name := string(binary.BigEndian.AppendUint64(nil, uint64(f.Version)))
	if err := w.head(f.JID, f.Version, headNoCache, name, job.Encode(f)); err != nil {
		return err
	}
	w.markReturns(f.JID, -int64(f.Version), f.Version, life)
	if w.noCached == nil {
		w.noCached = make(map[job.JID]bool, 1)
	}
	w.noCached[f.JID] = true
	w.acknowledged = append(w.acknowledged, func() {
		j.mu.Lock()
		j.noCache = true
		j.mu.Unlock()
	})
	return nil
}
