package redis

import (
	"encoding/binary"
	"fmt"
	"strconv"

	"github.com/cespare/xxhash/v2"

	"saltern/job"
)

// A stored value is what the script compares, then the fact:
//
//	offset 0   rank of a load, else 0
//	       1   digest of a return, see sameDigest, else zeros; 8 bytes
//	       9   envelope of the fact, with its version and checksum
const valueHead = 9

func storedValue(rank job.Rank, digest uint64, f job.Fact) []byte {
	sealed := job.Encode(f)
	b := make([]byte, valueHead, valueHead+len(sealed))
	b[0] = byte(rank)
	binary.BigEndian.PutUint64(b[1:], digest)
	return append(b, sealed...)
}

// openValue reads a stored value, which has to be a fact of the kind F of that job.
func openValue[F job.Fact](value string, jid job.JID) (F, error) {
	var zero F
	if len(value) < valueHead {
		return zero, fmt.Errorf("%w: %d bytes", job.ErrCorrupt, len(value))
	}
	f, err := job.Decode([]byte(value[valueHead:]))
	if err != nil {
		return zero, err
	}
	fact, ok := f.(F)
	if !ok || fact.Job() != jid {
		return zero, fmt.Errorf("%w: a fact of another place", job.ErrCorrupt)
	}
	return fact, nil
}

// sameDigest is equal for returns for which job.SameReturn is true.
func sameDigest(r job.Return) uint64 {
	d := xxhash.New()
	var b []byte
	if r.RetCode != nil {
		b = strconv.AppendInt(b, *r.RetCode, 10)
	}
	b = append(b, ' ')
	if r.Success != nil {
		b = strconv.AppendBool(b, *r.Success)
	}
	b = append(b, ' ')
	_, _ = d.Write(b) // it never fails
	_, _ = d.Write(r.Ret)
	return d.Sum64()
}

// minionsField names a list of minions by what is in it, so that it is kept once however often it comes.
func minionsField(ids []job.Minion) string {
	d := xxhash.New()
	var length [8]byte
	for _, id := range ids {
		binary.BigEndian.PutUint64(length[:], uint64(len(id)))
		_, _ = d.Write(length[:])
		_, _ = d.WriteString(string(id))
	}
	return fieldMinions + string(binary.BigEndian.AppendUint64(nil, d.Sum64()))
}
