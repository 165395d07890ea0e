package cassandra

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/tinylib/msgp/msgp"
	"golang.org/x/sync/errgroup"

	"saltern/job"
)

// encodeLast writes the last function of a minion. It begins with the version, so that of two of one job the larger
// value is the one that stays, and it is no envelope for that reason.
func encodeLast(f job.Return, at int64) []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, 64), uint64(f.Version))
	b = msgp.AppendArrayHeader(b, 4)
	b = msgp.AppendString(b, f.Fun)
	b = msgp.AppendString(b, string(f.JID))
	b = msgp.AppendInt64(b, at)
	return msgp.AppendBool(b, f.Failed)
}

func decodeLast(minion job.Minion, b []byte) (job.LastFunction, error) {
	l := job.LastFunction{Minion: minion}
	if len(b) < 8 {
		return l, job.ErrCorrupt
	}
	l.Version = job.Version(binary.BigEndian.Uint64(b))
	n, b, err := msgp.ReadArrayHeaderBytes(b[8:])
	if err == nil && n < 4 {
		err = job.ErrCorrupt
	}
	var jid string
	var at int64
	for _, read := range []func(){
		func() { l.Fun, b, err = msgp.ReadStringBytes(b) },
		func() { jid, b, err = msgp.ReadStringBytes(b) },
		func() { at, b, err = msgp.ReadInt64Bytes(b) },
		func() { l.Failed, b, err = msgp.ReadBoolBytes(b) },
	} {
		if err != nil {
			return l, fmt.Errorf("%w: %w", job.ErrCorrupt, err)
		}
		read()
	}
	if err != nil {
		return l, fmt.Errorf("%w: %w", job.ErrCorrupt, err)
	}
	l.JID, l.JobTime = job.JID(jid), time.UnixMicro(at).UTC()
	return l, nil
}

// LastFunctions gives the minions that have a return in the store, sorted, each with its last function.
func (s *Store) LastFunctions(ctx context.Context, fun string) ([]job.LastFunction, error) {
	session, err := s.session()
	if err != nil {
		return nil, err
	}
	shards := make([][]job.LastFunction, lastShards)
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for n := range shards {
		g.Go(func() error {
			iter := session.Query(selectLast, int16(n)).
				Consistency(s.reads).IterContext(gctx)
			for {
				var minion string
				var data []byte
				var seen int64
				if !iter.Scan(&minion, &data, &seen) {
					break
				}
				l, err := decodeLast(job.Minion(minion), data)
				if err != nil {
					s.dropCorrupt("last_functions", "", err)
					continue
				}
				l.Seen = l.Version.Time()
				if at := time.UnixMicro(seen).UTC(); at.After(l.Seen) {
					l.Seen = at
				}
				shards[n] = addLast(shards[n], l)
			}
			return iter.Close()
		})
	}
	if err := g.Wait(); err != nil {
		return nil, s.fail(ctx, "read of last functions", err)
	}
	all := slices.Concat(shards...)
	slices.SortFunc(all, func(a, b job.LastFunction) int {
		if a.Minion < b.Minion {
			return -1
		}
		return 1
	})
	if fun != "" {
		all = slices.DeleteFunc(all, func(l job.LastFunction) bool { return l.Fun != fun })
	}
	return all, nil
}

// addLast adds a row; a minion has one for each class of jobs.
func addLast(all []job.LastFunction, l job.LastFunction) []job.LastFunction {
	if n := len(all); n > 0 && all[n-1].Minion == l.Minion {
		all[n-1] = job.MergeLastFunction(all[n-1], l)
		return all
	}
	return append(all, l)
}
