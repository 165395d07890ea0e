package cassandra

import (
	"encoding/binary"
	"fmt"

	"github.com/cespare/xxhash/v2"

	"saltern/job"
	"saltern/tiers"
)

// The returns of a job go into its first bucket until this process has put bucketRows of them there, then into the
// second, and so on. So a job of 20 minions is one partition, one of 60,000 minions is 30, nobody has to know how many
// minions a job will have, and what comes at one time goes to one partition and shares a batch. Several processes may
// each put that many into a bucket.
const bucketRows = 2000

// The first bucket also has marks: rows with the minion "", which is none. In place of a version each has the number of a
// further bucket, or, negative, the version of a nocache mark.

func returnsPartition(jid job.JID, bucket int32) string {
	return string(binary.BigEndian.AppendUint32([]byte{'r'}, uint32(bucket))) + string(jid)
}

// markReturns writes a mark into the first bucket.
func (w *writing) markReturns(jid job.JID, mark int64, v job.Version, l life) {
	w.add(returnsPartition(jid, 0), len(jid), insertReturn,
		string(jid), int32(0), "", mark, int64(0), []byte{}, []byte{}, l.ttl, stamp(v))
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
		inlineReturn, life.ttl, func() []byte { return nil }, f.PayloadBytes())
	if err != nil {
		return err
	}
	header := job.Encode(head)
	w.add(returnsPartition(f.JID, bucket), len(header)+len(cell), insertReturn,
		string(f.JID), bucket, string(f.Minion), int64(f.Version), digest, header, cell, life.ttl, stamp(f.Version))
	w.arrived(j, f.JID, at, life, f.Version)
	j.mu.Lock()
	listed := j.lists(f.Minion, life.class)
	j.mu.Unlock()
	if !listed {
		w.minionJob(f.JID, f.Minion, at, life, f.Version)
	}
	w.last(f, at.UnixMicro(), life)
	w.compare(i, f, digest)
	return nil
}

// bucket gives the bucket of a return, or says that the job keeps none.
func (w *writing) bucket(j *knownJob, f job.Return, l life) (bucket int32, dropped bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.noCache || w.noCached[f.JID] {
		return 0, true
	}
	bucket = int32(j.returns / bucketRows)
	j.returns++
	if bucket > j.marked {
		// Each call that comes before the mark is acknowledged writes it too: each has to be read.
		w.markReturns(f.JID, int64(bucket), f.Version, l)
		w.acknowledged = append(w.acknowledged, func() {
			j.mu.Lock()
			j.marked = max(j.marked, bucket)
			j.mu.Unlock()
		})
	}
	return bucket, false
}

// last writes what a minion did last: the timestamp is the time of the job, so that the later job stays, and of two
// returns of one job the larger value, which begins with its version. The version says when the minion was seen, too;
// only a return to an earlier job than one that this process has seen has to say it by itself.
func (w *writing) last(f job.Return, at int64, l life) {
	n, class := shard(string(f.Minion), lastShards), int16(l.class)
	key := partition("l", 0, n)
	if newest, _ := w.s.newest.get(f.Minion); at < newest {
		seen := f.Version.Time().UnixMicro()
		w.add(key, 0, updateSeen, l.ttl, seen, seen, n, string(f.Minion), class)
	} else {
		w.s.newest.put(f.Minion, at)
	}
	data := encodeLast(f, at)
	w.add(key, len(data), insertLast, n, string(f.Minion), class, data, l.ttl, at)
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

// seenReturn is a return that this process has stored: the first of its minion and job that it knows.
type seenReturn struct {
	version job.Version
	digest  int64
}

// seenReturns is a generation: 200,000 returns at most, some 15 MB.
const seenReturns = 100_000

func seenKey(f job.Return) uint64 {
	return xxhash.Sum64String(string(f.JID) + "\x00" + string(f.Minion))
}

// compare says whether this process has stored another return of the minion before. A minion sends its return again to
// the master that it sent it to, so that the process that knows is the one that is asked; a question to Cassandra beside
// every write halved the returns a second.
func (w *writing) compare(i int, f job.Return, digest int64) {
	this := seenReturn{f.Version, digest}
	key := seenKey(f)
	before, seen := w.returned[returnKey{f.JID, f.Minion}]
	if !seen {
		before, seen = w.s.returned.get(key)
	}
	first := this
	if seen {
		w.outcomes[i] = outcomeOf(this, before)
		if before.version <= this.version {
			first = before
		}
	}
	if w.returned == nil {
		w.returned = make(map[returnKey]seenReturn, 1)
	}
	w.returned[returnKey{f.JID, f.Minion}] = first
	w.acknowledged = append(w.acknowledged, func() { w.s.returned.put(key, first) })
}

// outcomeOf compares a return with another one that was there.
func outcomeOf(this, before seenReturn) job.Outcome {
	switch {
	case this.digest == before.digest:
		return job.Repeat
	case this.version < before.version: // it came later and is the first one all the same
		return job.Stored
	default:
		return job.Differs
	}
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
	iter = session.Query(selectVersions, string(jid), int32(0)).
		Consistency(w.s.reads).IterContext(w.ctx)
	var minion string
	var version int64
	for alone && iter.Scan(&minion, &version) {
		ours, written := w.returned[returnKey{jid, job.Minion(minion)}]
		if minion != "" && (!written || ours.version != job.Version(version)) {
			alone = false
		}
	}
	return alone, iter.Close()
}
