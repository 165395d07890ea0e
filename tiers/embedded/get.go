package embedded

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"saltern/job"
	"saltern/tiers"
)

// get gives a copy of the value of a key, and whether there is one.
func (s *Store) get(r pebble.Reader, key []byte) (value []byte, found bool, err error) {
	v, closer, err := r.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, unavailable(err)
	}
	value = bytes.Clone(v)
	if err := closer.Close(); err != nil {
		return nil, false, unavailable(err)
	}
	return value, true, nil
}

func (s *Store) has(r pebble.Reader, key []byte) (bool, error) {
	_, found, err := s.get(r, key)
	return found, err
}

// errStop ends a scan without an error.
var errStop = errors.New("stop")

// scan calls visit for each key that begins with prefix, in order, until it gives an error; errStop
// ends the scan well. The slices are good during the call only.
func (s *Store) scan(
	ctx context.Context, r pebble.Reader, prefix []byte, visit func(key, value []byte) error,
) error {
	return s.scanRange(ctx, r, prefix, after(prefix), visit)
}

// scanRange is scan for the keys from lower on, below upper.
func (s *Store) scanRange(
	ctx context.Context, r pebble.Reader, lower, upper []byte, visit func(key, value []byte) error,
) error {
	it, err := r.NewIterWithContext(ctx, &pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	if err != nil {
		return unavailable(err)
	}
	n := 0
	for ok := it.First(); ok && err == nil; ok = it.Next() {
		if n++; n%256 == 0 && ctx.Err() != nil {
			err = ctx.Err()
			break
		}
		value, verr := it.ValueAndErr()
		if verr != nil {
			break // the iterator has the error too
		}
		err = visit(it.Key(), value)
	}
	if cerr := it.Close(); cerr != nil {
		return unavailable(cerr)
	}
	if errors.Is(err, errStop) {
		return nil
	}
	return err
}

func unavailable(err error) error { return fmt.Errorf("%w: %w", tiers.ErrUnavailable, err) }

// place gives the place of a job, and whether there is such a job.
func (s *Store) place(r pebble.Reader, jid job.JID) (place, bool, error) {
	value, found, err := s.get(r, placeKey(jid))
	if err != nil || !found {
		return place{}, false, err
	}
	p, err := decodePlace(value)
	if err != nil {
		s.dropCorrupt(tabPlace, jid, err)
		return place{}, false, nil
	}
	return p, true, nil
}

// decodeFact decodes a stored fact of kind T. One that is corrupt is counted and not found.
func decodeFact[T job.Fact](s *Store, kind byte, jid job.JID, value []byte) (T, bool) {
	f, err := job.Decode(value)
	if err == nil {
		if t, ok := f.(T); ok {
			return t, true
		}
		err = job.ErrCorrupt
	}
	s.dropCorrupt(kind, jid, err)
	var zero T
	return zero, false
}

// getFact reads a fact of kind T. exists says whether the key is there, found whether the fact is.
func getFact[T job.Fact](
	s *Store, r pebble.Reader, key []byte, kind byte, jid job.JID,
) (f T, found, exists bool, err error) {
	value, exists, err := s.get(r, key)
	if err != nil || !exists {
		return f, false, exists, err
	}
	f, found = decodeFact[T](s, kind, jid, value)
	return f, found, true, nil
}
