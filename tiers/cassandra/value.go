package cassandra

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"golang.org/x/sync/errgroup"

	"saltern/job"
)

const (
	// chunkBytes is the size of a piece of a large value: far below the 16 MiB that Cassandra takes at once.
	chunkBytes = 1 << 20
	// inlineReturn and inlineRow are from when on a value goes into chunks. Small for returns, so that a bucket of
	// them stays below 64 MiB whatever minions send.
	inlineReturn = 32 << 10
	inlineRow    = 1 << 20
	// chunksAtOnce bounds the memory of a transfer beside the value itself.
	chunksAtOnce = 4
)

// place is where the chunks of a value are.
type place struct {
	owner, name string
	version     job.Version
}

// A manifest stands in a row for a value that is in chunks:
//
//	offset 0   magic, "Sc" (that of a value in the row is "Sn")
//	       2   format version, 1
//	       3   0
//	       4   number of chunks, 4 bytes big-endian
//	       8   bytes of the value, 8
//	      16   bytes of the payload when unpacked, 8
//	      24   version of the fact, 8
//	      32   CRC32C of bytes 0 to 31 and of what follows, 4
//	      36   the fact without its payload, as job.Encode writes it
const (
	manifestMagic  = "Sc"
	manifestHeader = 36
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

type manifest struct {
	chunks  int
	bytes   int64
	payload int64
	version job.Version
	head    []byte
}

func isManifest(cell []byte) bool { return bytes.HasPrefix(cell, []byte(manifestMagic)) }

func (m manifest) encode() []byte {
	b := make([]byte, manifestHeader, manifestHeader+len(m.head))
	copy(b, manifestMagic)
	b[2] = 1
	binary.BigEndian.PutUint32(b[4:], uint32(m.chunks))
	binary.BigEndian.PutUint64(b[8:], uint64(m.bytes))
	binary.BigEndian.PutUint64(b[16:], uint64(m.payload))
	binary.BigEndian.PutUint64(b[24:], uint64(m.version))
	b = append(b, m.head...)
	binary.BigEndian.PutUint32(b[32:], manifestSum(b))
	return b
}

func manifestSum(b []byte) uint32 {
	return crc32.Update(crc32.Checksum(b[:32], castagnoli), castagnoli, b[manifestHeader:])
}

func decodeManifest(b []byte) (manifest, error) {
	if len(b) < manifestHeader || !isManifest(b) || b[2] != 1 || binary.BigEndian.Uint32(b[32:]) != manifestSum(b) {
		return manifest{}, fmt.Errorf("%w: manifest", job.ErrCorrupt)
	}
	m := manifest{
		chunks: int(binary.BigEndian.Uint32(b[4:])), bytes: int64(binary.BigEndian.Uint64(b[8:])),
		payload: int64(binary.BigEndian.Uint64(b[16:])), version: job.Version(binary.BigEndian.Uint64(b[24:])),
		head: b[manifestHeader:],
	}
	if m.bytes > job.MaxBody || int64(m.chunks) != (m.bytes+chunkBytes-1)/chunkBytes {
		return manifest{}, fmt.Errorf("%w: %d chunks for %d bytes", job.ErrCorrupt, m.chunks, m.bytes)
	}
	return m, nil
}

// pack gives what goes into a row for a value: the value, or, from inline bytes on, a manifest. The chunks are stored
// when it returns: whoever can read the manifest can read them.
func (s *Store) pack(
	ctx context.Context, p place, value []byte, inline, ttl int, head func() []byte, payload int,
) ([]byte, error) {
	if len(value) <= inline {
		return value, nil
	}
	session, err := s.session()
	if err != nil {
		return nil, err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(chunksAtOnce)
	n := 0
	for rest := value; len(rest) > 0; n++ {
		piece, number := rest[:min(chunkBytes, len(rest))], n
		rest = rest[len(piece):]
		g.Go(func() error {
			return session.Query(insertChunk, p.owner, p.name, int64(p.version), number, piece, ttl, stamp(p.version)).
				Consistency(s.writes).ExecContext(ctx)
		})
	}
	if err := g.Wait(); err != nil {
		return nil, s.fail(ctx, "write of a large value", err)
	}
	return manifest{chunks: n, bytes: int64(len(value)), payload: int64(payload), version: p.version, head: head()}.encode(), nil
}

// unpack gives the value for which a row has cell. Whatever is wrong with it, also a chunk that is not there, the
// error is a job.ErrCorrupt.
func (s *Store) unpack(ctx context.Context, p place, cell []byte) ([]byte, error) {
	if !isManifest(cell) {
		return cell, nil
	}
	m, err := decodeManifest(cell)
	if err != nil {
		return nil, err
	}
	session, err := s.session()
	if err != nil {
		return nil, err
	}
	iter := session.Query(selectChunks, p.owner, p.name, int64(p.version)).Consistency(s.reads).
		PageSize(chunksAtOnce).IterContext(ctx)
	value := make([]byte, 0, m.bytes)
	var n, next int
	var data []byte
	for ; iter.Scan(&n, &data); next++ {
		if n != next || int64(len(value)+len(data)) > m.bytes {
			break
		}
		value = append(value, data...)
	}
	if err := iter.Close(); err != nil {
		return nil, s.fail(ctx, "read of a large value", err)
	}
	if int64(len(value)) != m.bytes {
		return nil, fmt.Errorf("%w: %d of %d bytes are there", job.ErrCorrupt, len(value), m.bytes)
	}
	return value, nil
}
