package journal

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"saltern/job"
	"saltern/tiers/embedded/disk"
)

// log is the log on disk: entries by their sequence number, in a pebble store of its own. Its keys
// are a letter and what the letter needs:
//
//	e seq   an entry: the facts of one write
//	d seq   an entry that the store will never take, with the reason in front
//	n word  a flag that is set
//	f       the version of this format
type log struct {
	db *disk.DB
}

const (
	entryKey  = 'e'
	deadKey   = 'd'
	flagKey   = 'n'
	formatKey = 'f'
	// logFormat is the version of the format of the log.
	logFormat = 1
)

func openLog(o Options) (*log, error) {
	db, err := disk.Open(disk.Options{
		Dir: o.Dir, Reserve: o.Reserve, Logger: o.Logger, OnFatal: o.OnFatal, Now: o.Now, FS: o.FS,
	})
	if err != nil {
		return nil, err
	}
	l := &log{db: db}
	if err := l.checkFormat(); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return l, nil
}

func (l *log) checkFormat() error {
	v, closer, err := l.db.Get([]byte{formatKey})
	if errors.Is(err, pebble.ErrNotFound) {
		return l.db.Set([]byte{formatKey}, []byte{logFormat}, pebble.Sync)
	}
	if err != nil {
		return fmt.Errorf("read the format: %w", err)
	}
	defer closer.Close()
	if len(v) != 1 || v[0] != logFormat {
		return fmt.Errorf("format %x of the log is not %d: it was written by another version of saltern; "+
			"run that one until its journal is empty", v, logFormat)
	}
	return nil
}

func (l *log) close() error { return l.db.Close() }

func seqKey(letter byte, seq uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{letter}, seq)
}

// encode packs the facts of an entry, each with its length in front.
func encode(facts []job.Fact) []byte {
	var out []byte
	for _, f := range facts {
		b := job.Encode(f)
		out = binary.AppendUvarint(out, uint64(len(b)))
		out = append(out, b...)
	}
	return out
}

var errEntry = errors.New("entry of the journal is corrupt")

// decode is the reverse of encode. The facts do not share memory with b.
func decode(b []byte) ([]job.Fact, error) {
	b = append([]byte(nil), b...)
	var facts []job.Fact
	for len(b) > 0 {
		n, used := binary.Uvarint(b)
		if used <= 0 || n > uint64(len(b)-used) {
			return facts, errEntry
		}
		f, err := job.Decode(b[used : used+int(n)])
		if err != nil {
			return facts, fmt.Errorf("%w: %w", errEntry, err)
		}
		facts = append(facts, f)
		b = b[used+int(n):]
	}
	return facts, nil
}

// append writes an entry and returns when it is on the disk, together with all others of that
// moment. Near the end of the disk it refuses, with tiers.ErrFull.
func (l *log) append(seq uint64, value []byte) error {
	if err := l.db.Take(int64(len(value)), 1); err != nil {
		return err
	}
	return l.db.Guard(func() error { return l.db.Set(seqKey(entryKey, seq), value, pebble.Sync) })
}

// read gives the facts of an entry; none for an entry that is no longer there.
func (l *log) read(seq uint64) ([]job.Fact, error) {
	v, closer, err := l.db.Get(seqKey(entryKey, seq))
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the journal: %w", err)
	}
	defer closer.Close()
	return decode(v)
}

// scan calls f for every entry, oldest first. An entry that is corrupt is put aside.
func (l *log) scan(f func(seq uint64, size int, facts []job.Fact)) error {
	it, err := l.db.NewIter(&pebble.IterOptions{LowerBound: []byte{entryKey}, UpperBound: []byte{entryKey + 1}})
	if err != nil {
		return fmt.Errorf("read the journal: %w", err)
	}
	var corrupt []uint64
	for ok := it.First(); ok; ok = it.Next() {
		seq := binary.BigEndian.Uint64(it.Key()[1:])
		facts, err := decode(it.Value())
		if err != nil {
			corrupt = append(corrupt, seq)
		}
		if len(facts) > 0 {
			f(seq, len(it.Value()), facts)
		}
	}
	if err := it.Close(); err != nil {
		return fmt.Errorf("read the journal: %w", err)
	}
	for _, seq := range corrupt {
		if err := l.bury(seq, errEntry.Error()); err != nil {
			return err
		}
	}
	return nil
}

// bury puts an entry aside, with the reason.
func (l *log) bury(seq uint64, reason string) error {
	v, closer, err := l.db.Get(seqKey(entryKey, seq))
	if err != nil {
		return fmt.Errorf("read the journal: %w", err)
	}
	defer closer.Close()
	value := binary.AppendUvarint(nil, uint64(len(reason)))
	value = append(append(value, reason...), v...)
	b := l.db.NewBatch()
	defer b.Close()
	err = l.db.Guard(func() error {
		return errors.Join(
			b.Set(seqKey(deadKey, seq), value, nil), b.Delete(seqKey(entryKey, seq), nil), b.Commit(pebble.Sync))
	})
	if err != nil {
		return fmt.Errorf("write the journal: %w", err)
	}
	return nil
}

func (l *log) countDead() (int, error) {
	n := 0
	err := l.eachDead(func(uint64, string, int, []job.Fact) { n++ })
	return n, err
}

// eachDead calls f for every entry that was put aside.
func (l *log) eachDead(f func(seq uint64, reason string, size int, facts []job.Fact)) error {
	it, err := l.db.NewIter(&pebble.IterOptions{LowerBound: []byte{deadKey}, UpperBound: []byte{deadKey + 1}})
	if err != nil {
		return fmt.Errorf("read the journal: %w", err)
	}
	for ok := it.First(); ok; ok = it.Next() {
		v := it.Value()
		n, used := binary.Uvarint(v)
		if used <= 0 || n > uint64(len(v)-used) {
			continue
		}
		entry := v[used+int(n):]
		facts, _ := decode(entry) // what can be read of it
		f(binary.BigEndian.Uint64(it.Key()[1:]), string(v[used:used+int(n)]), len(entry), facts)
	}
	if err := it.Close(); err != nil {
		return fmt.Errorf("read the journal: %w", err)
	}
	return nil
}

// trim removes the entries below seq. It need not be synced: what comes back after a crash is sent
// again.
func (l *log) trim(seq uint64) error {
	err := l.db.Guard(func() error {
		return l.db.DeleteRange(seqKey(entryKey, 0), seqKey(entryKey, seq), pebble.NoSync)
	})
	if err != nil {
		return fmt.Errorf("trim the journal: %w", err)
	}
	return nil
}

// discardDead removes an entry that was put aside, and says whether there was one.
func (l *log) discardDead(seq uint64) (bool, error) {
	key := seqKey(deadKey, seq)
	_, closer, err := l.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read the journal: %w", err)
	}
	_ = closer.Close()
	if err := l.db.Guard(func() error { return l.db.Delete(key, pebble.Sync) }); err != nil {
		return false, fmt.Errorf("write the journal: %w", err)
	}
	return true, nil
}

// setFlag notes a word, or takes it back. It need not be synced.
func (l *log) setFlag(word string, set bool) error {
	key := append([]byte{flagKey}, word...)
	err := l.db.Guard(func() error {
		if set {
			return l.db.Set(key, nil, pebble.NoSync)
		}
		return l.db.Delete(key, pebble.NoSync)
	})
	if err != nil {
		return fmt.Errorf("write the journal: %w", err)
	}
	return nil
}

func (l *log) flag(word string) (bool, error) {
	_, closer, err := l.db.Get(append([]byte{flagKey}, word...))
	if errors.Is(err, pebble.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read the journal: %w", err)
	}
	return true, closer.Close()
}
