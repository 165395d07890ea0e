package tiers

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// EncodeCursor writes a place in a list as an opaque word. One list's cursor is not taken by another,
// which kind tells apart; the checksum finds one that was cut or made up.
func EncodeCursor(kind byte, at []byte) string {
	b := append([]byte{kind}, at...)
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
	return base64.RawURLEncoding.EncodeToString(b)
}

// DecodeCursor gives the place, of at least least bytes, that a cursor of this kind was made of, or
// ErrInvalid.
func DecodeCursor(kind byte, cursor string, least int) ([]byte, error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	n := len(b) - 4
	if err != nil || n < 1+least || b[0] != kind ||
		binary.BigEndian.Uint32(b[n:]) != crc32.ChecksumIEEE(b[:n]) {
		return nil, fmt.Errorf("%w: cursor %.80q is not of this list", ErrInvalid, cursor)
	}
	return b[1:n], nil
}
