package cassandra

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/apache/cassandra-gocql-driver/v2"

	"saltern/job"
	"saltern/tiers"
)

// headRow is a row of heads.
type headRow struct {
	kind int8
	name string
	data []byte
}

// headRows reads the rows of a job's head, or those of one kind alone, from a second node too when the first is slow.
func (s *Store) headRows(ctx context.Context, jid job.JID, kind ...int8) ([]headRow, error) {
	session, err := s.session()
	if err != nil {
		return nil, err
	}
	rows, err := hedge(ctx, s.o.HedgeAfter, func(ctx context.Context) ([]headRow, error) {
		return s.readHead(ctx, session, jid, kind...)
	})
	return rows, s.fail(ctx, "read of a job", err)
}

func (s *Store) readHead(ctx context.Context, session *gocql.Session, jid job.JID, kind ...int8) ([]headRow, error) {
	q := session.Query(selectHead, string(jid))
	if len(kind) > 0 {
		q = session.Query(selectHeadKind, string(jid), kind[0])
	}
	iter := q.Consistency(s.reads).IterContext(ctx)
	var rows []headRow
	for {
		var r headRow // the driver reuses the bytes that it is given
		if !iter.Scan(&r.kind, &r.name, &r.data) {
			break
		}
		rows = append(rows, r)
	}
	return rows, iter.Close()
}

// Head gives all that is known of a job but its returns.
func (s *Store) Head(ctx context.Context, jid job.JID) (job.Head, error) {
	rows, err := s.headRows(ctx, jid)
	if err != nil {
		return job.Head{}, err
	}
	if len(rows) == 0 {
		return job.Head{}, notFound(jid)
	}
	return s.head(ctx, jid, rows, true)
}

func notFound(jid job.JID) error { return fmt.Errorf("job %q: %w", jid, tiers.ErrNotFound) }

// head puts rows together by the merge rules. Without payloads, one that is in chunks is not fetched.
func (s *Store) head(ctx context.Context, jid job.JID, rows []headRow, payloads bool) (job.Head, error) {
	h := job.Head{JID: jid}
	var minions [][]job.Minion
	// Ranks are in order: the loads that lose are not looked at.
	load := -1
	for i, r := range rows {
		if r.kind == headLoad {
			load = i
		}
	}
	for i, r := range rows {
		if r.kind == headBirth || r.kind == headLoad && i != load {
			continue
		}
		f, err := s.headFact(ctx, jid, r, payloads)
		if err != nil {
			return h, err
		}
		if m, ok := f.(job.Minions); ok {
			minions = append(minions, m.IDs)
			continue
		}
		if f != nil {
			h = h.With(f)
		}
	}
	h.Minions = job.UnionMinions(minions...)
	return h, nil
}

// headFact gives the fact of a row, nil where it is corrupt.
func (s *Store) headFact(ctx context.Context, jid job.JID, r headRow, payloads bool) (job.Fact, error) {
	value := r.data
	if isManifest(value) {
		m, err := decodeManifest(value)
		switch {
		case err != nil:
		case r.kind == headLoad && !payloads:
			value = m.head
		default:
			value, err = s.unpackHead(ctx, jid, r, m)
		}
		if err != nil && !errors.Is(err, job.ErrCorrupt) {
			return nil, err
		}
		if err != nil {
			s.dropCorrupt("heads", jid, err)
			return nil, nil
		}
	}
	f, err := job.Decode(value)
	if err != nil {
		s.dropCorrupt("heads", jid, err)
		return nil, nil
	}
	return f, nil
}

func (s *Store) unpackHead(ctx context.Context, jid job.JID, r headRow, m manifest) ([]byte, error) {
	name := "load/"
	if r.kind == headMinions {
		name = "minions/"
	}
	return s.unpack(ctx, place{"job/" + string(jid), name + r.name, m.version}, r.data)
}

// birthOf is the time of a job: the earliest that a writer took. It is zero where no row says it.
func birthOf(rows []headRow) time.Time {
	var birth time.Time
	for _, r := range rows {
		if r.kind != headBirth || len(r.name) < 8 {
			continue
		}
		at := time.UnixMicro(int64(binary.BigEndian.Uint64([]byte(r.name)))).UTC()
		if birth.IsZero() || at.Before(birth) {
			birth = at
		}
	}
	return birth
}
