package cassandra

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/cespare/xxhash/v2"

	"saltern/job"
	"saltern/tiers"
)

// The returns of a job go into its first bucket until this process has put bucketRows of them there; the rest goes,
// by the hash of the minion, into the other buckets. So a job of 20 minions is one partition, one of 60,000 has some
// 2,000 rows in each of 32, and nobody has to know how many minions a job will have. A static column in the first
// bucket tells readers of the others.
const (
	bucketRows = 2000
	buckets    = 32
)

// bucketOf is the bucket of a minion once the first is full.
func bucketOf(id job.Minion) int16 { return int16(1 + xxhash.Sum64String(string(id))%(buckets-1)) }

func returnsPartition(jid job.JID, bucket int16) string {
	return string(append([]byte{'r', byte(bucket)}, jid...))
}

// ret writes a return: the header and the payload each in a cell, in the row of its minion, version and digest, so that
// no return ever replaces another one.
func (w *writing) ret(i int, f job.Return) error {
	if n := len(f.Minion); n == 0 || n > job.MaxMinionBytes {
		return fmt.Errorf("%w: minion id of %d bytes; 1 to %d are allowed", tiers.ErrInvalid, n, job.MaxMinionBytes)
	}
	j, at, life, err := w.job(f.JID, f.Version)
	if err != nil {
		return err
	}
	bucket, dropped := w.bucket(j, f, life)
	if dropped {
		w.outcomes[i] = job.Dropped
		return nil
	}
	head := f
	head.Ret, head.Rest, head.Times = nil, nil, nil
	body := job.Return{Version: f.Version, Ret: f.Ret, Rest: f.Rest, Times: f.Times}
	digest := digestOf(f)
	cell, err := w.s.pack(w.ctx, returnPlace(f, digest), job.Encode(body),
		inlineReturn, life.ttl, func() []byte { return nil }, len(f.Ret)+len(f.Rest)+len(f.Times))
	if err != nil {
		return err
	}
	header := job.Encode(head)
	w.add(returnsPartition(f.JID, bucket), len(header)+len(cell), insertReturn,
		string(f.JID), bucket, string(f.Minion), int64(f.Version), digest, header, cell, life.ttl, stamp(f.Version))
	w.arrived(j, f.JID, at, life, f.Version)
	w.minionJob(f.JID, f.Minion, at, life, f.Version)
	w.last(f, at.UnixMicro(), life)
	w.check(i, f, bucket, digest)
	return nil
}

// bucket gives the bucket of a return, or says that the job keeps none.
func (w *writing) bucket(j *knownJob, f job.Return, l life) (bucket int16, dropped bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.noCache || w.noCached[f.JID] {
		return 0, true
	}
	if j.returns < bucketRows {
		j.returns++
		return 0, false
	}
	if !j.spilled {
		w.add(returnsPartition(f.JID, 0), len(f.JID), updateSpilled, l.ttl, stamp(f.Version), string(f.JID), int16(0))
		w.acknowledged = append(w.acknowledged, func() {
			j.mu.Lock()
			j.spilled = true
			j.mu.Unlock()
		})
	}
	return bucketOf(f.Minion), false
}

// last writes what a minion did last: the timestamp is the time of the job, so that the later job stays, and of two
// returns of one job the larger value, which begins with its version. When it was seen is of no job in particular.
func (w *writing) last(f job.Return, at int64, l life) {
	n, class := shard(string(f.Minion), lastShards), int16(l.class)
	data := encodeLast(f, at)
	key := partition("l", 0, n)
	w.add(key, len(data), insertLast, n, string(f.Minion), class, data, l.ttl, at)
	now := w.s.o.Now().UnixMicro()
	w.add(key, 0, updateSeen, l.ttl, now, now, n, string(f.Minion), class)
}

// returnPlace is where the chunks of a payload are.
func returnPlace(f job.Return, digest int64) place {
	return place{"job/" + string(f.JID), string(binary.BigEndian.AppendUint64([]byte("return/"), uint64(digest))) + string(f.Minion), f.Version}
}

// digestOf tells returns apart that are not the same by job.SameReturn.
func digestOf(r job.Return) int64 {
	h := xxhash.New()
	code, success := int64(0), byte(0)
	if r.RetCode != nil {
		code = *r.RetCode
		success |= 1
	}
	if r.Success != nil {
		success |= 2
		if *r.Success {
			success |= 4
		}
	}
	_, _ = h.Write(append(binary.BigEndian.AppendUint64(nil, uint64(code)), success)) // never fails
	_, _ = h.Write(r.Ret)
	return int64(h.Sum64())
}

// check is the question whether another return of a minion is stored.
type check struct {
	jid    job.JID
	bucket int16
	minion job.Minion
	// fact is the place of the return in its call.
	fact    int
	version job.Version
	digest  int64
	done    <-chan error
	// found says that first and its digest are those of the first other return.
	found       bool
	first       job.Version
	firstDigest int64
}

// checkLimits bound one question; a page of answers is small.
var checkLimits = limits{items: 100, bytes: 1 << 20, inFlight: 2, all: 64}

// check notes a question about a return. One that is in this call twice needs none.
func (w *writing) check(i int, f job.Return, bucket int16, digest int64) {
	key := returnKey{f.JID, f.Minion}
	if before, twice := w.returned[key]; twice {
		w.outcomes[i] = outcomeOf(f.Version, digest, before.Version, digestOf(before))
		if before.Version <= f.Version {
			return
		}
	}
	if w.returned == nil {
		w.returned = make(map[returnKey]job.Return, 1)
	}
	w.returned[key] = f
	w.checks = append(w.checks, &check{jid: f.JID, bucket: bucket, minion: f.Minion, fact: i, version: f.Version, digest: digest})
}

// sendChecks asks beside the write: nothing waits for an answer but the caller who wants to know.
func (w *writing) sendChecks() {
	for _, c := range w.checks {
		c.done = w.s.checks.put(w.ctx, returnsPartition(c.jid, c.bucket), []*check{c}, len(c.minion))
	}
}

// takeChecks makes outcomes of the answers. A question that failed leaves Stored: the return is.
func (w *writing) takeChecks() {
	for _, c := range w.checks {
		select {
		case err := <-c.done:
			if err == nil && c.found && w.outcomes[c.fact] == job.Stored {
				w.outcomes[c.fact] = outcomeOf(c.version, c.digest, c.first, c.firstDigest)
			}
		case <-w.ctx.Done():
			return
		}
	}
}

// outcomeOf compares a return with another one that is there.
func outcomeOf(v job.Version, digest int64, there job.Version, thereDigest int64) job.Outcome {
	switch {
	case digest == thereDigest:
		return job.Repeat
	case v < there: // it came later and is the first one all the same
		return job.Stored
	default:
		return job.Differs
	}
}

// sendChecks asks about minions of one bucket of one job.
func (s *Store) sendChecks(ctx context.Context, checks []*check) error {
	session, err := s.session()
	if err != nil {
		return err
	}
	ids := make([]string, len(checks))
	for i, c := range checks {
		ids[i] = string(c.minion)
	}
	iter := session.Query(selectDigests, string(checks[0].jid), checks[0].bucket, ids).Consistency(s.reads).IterContext(ctx)
	var minion string
	var version, digest int64
	for iter.Scan(&minion, &version, &digest) {
		for _, c := range checks {
			// Its own row may be there already.
			if c.minion == job.Minion(minion) && c.version != job.Version(version) && (!c.found || job.Version(version) < c.first) {
				c.found, c.first, c.firstDigest = true, job.Version(version), digest
			}
		}
	}
	return iter.Close()
}

// findCreated asks, after the write, whether these are all the facts of jobs that this process had not met. Both writing
// and reading by quorum, of two first writers not both are told so.
func (w *writing) findCreated(facts []job.Fact) {
	for i, f := range facts {
		jid := f.Job()
		if !w.fresh[jid] || w.outcomes[i] != job.Stored {
			continue
		}
		delete(w.fresh, jid) // the first fact of a job is asked for
		alone, err := w.alone(jid)
		if err != nil {
			// It is stored: that it is not known to be the first fact costs a reader one question.
			w.s.log.Debug("not known whether a job is new", "jid", string(jid), "err", err)
			continue
		}
		if alone {
			w.outcomes[i] = job.Created
		}
	}
}

// alone says whether all that is stored of a job came with this call.
func (w *writing) alone(jid job.JID) (bool, error) {
	session, err := w.s.session()
	if err != nil {
		return false, err
	}
	iter := session.Query(selectHeadTimes, string(jid)).
		Consistency(w.s.reads).IterContext(w.ctx)
	alone := true
	var kind int8
	var name string
	var at int64
	for iter.Scan(&kind, &name, &at) {
		if ours, written := w.written[headKey{jid, kind, name}]; !written || ours != at {
			alone = false
		}
	}
	if err := iter.Close(); err != nil || !alone {
		return false, err
	}
	iter = session.Query(selectVersions, string(jid), int16(0)).
		Consistency(w.s.reads).IterContext(w.ctx)
	var minion string
	var version int64
	for alone && iter.Scan(&minion, &version) {
		// A static column alone gives a row without a minion.
		ours, written := w.returned[returnKey{jid, job.Minion(minion)}]
		if minion != "" && (!written || ours.Version != job.Version(version)) {
			alone = false
		}
	}
	return alone, iter.Close()
}
