package server

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/tinylib/msgp/msgp"
	"pgregory.net/rapid"
)

// genValue draws a MessagePack value of any kind.
func genValue(t *rapid.T, depth int) []byte {
	kinds := 11
	if depth == 0 {
		kinds = 9
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		return msgp.AppendNil(nil)
	case 1:
		return msgp.AppendBool(nil, rapid.Bool().Draw(t, "bool"))
	case 2:
		return msgp.AppendInt64(nil, rapid.Int64().Draw(t, "int"))
	case 3:
		return msgp.AppendUint64(nil, rapid.Uint64().Draw(t, "uint"))
	case 4:
		return msgp.AppendFloat64(nil, rapid.Float64().Draw(t, "float"))
	case 5:
		return msgp.AppendFloat32(nil, rapid.Float32().Draw(t, "float32"))
	case 6:
		return msgp.AppendString(nil, strings.Repeat("s", rapid.IntRange(0, 300).Draw(t, "len")))
	case 7:
		return msgp.AppendBytes(nil, make([]byte, rapid.IntRange(0, 70_000).Draw(t, "len")))
	case 8:
		n := rapid.IntRange(0, 300).Draw(t, "len")
		b, err := msgp.AppendExtension(nil, &msgp.RawExtension{Type: 78, Data: make([]byte, n)})
		if err != nil {
			t.Fatal(err)
		}
		return b
	case 9:
		n := rapid.IntRange(0, 20).Draw(t, "len")
		b := msgp.AppendArrayHeader(nil, uint32(n))
		for range n {
			b = append(b, genValue(t, depth-1)...)
		}
		return b
	default:
		n := rapid.IntRange(0, 20).Draw(t, "len")
		b := msgp.AppendMapHeader(nil, uint32(n))
		for range 2 * n {
			b = append(b, genValue(t, depth-1)...)
		}
		return b
	}
}

// A stream of objects comes out object by object, however it is cut into pieces.
func TestFramesCutsAStreamIntoItsObjects(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var stream []byte
		var want [][]byte
		for range rapid.IntRange(1, 5).Draw(t, "objects") {
			v := genValue(t, 3)
			want, stream = append(want, v), append(stream, v...)
		}
		var r io.Reader = bytes.NewReader(stream)
		if rapid.Bool().Draw(t, "half") {
			r = iotest.HalfReader(r)
		}
		f := newFrames(r, 64<<20, 1024)
		for i, w := range want {
			got, err := f.next()
			if err != nil {
				t.Fatalf("object %d: %v", i, err)
			}
			if !bytes.Equal(got, w) {
				t.Fatalf("object %d = %d bytes; want %d", i, len(got), len(w))
			}
		}
		if _, err := f.next(); !errors.Is(err, io.EOF) {
			t.Fatalf("after the last object: %v; want EOF", err)
		}
	})
}

func TestFramesRefusesWhatItMust(t *testing.T) {
	deep := append(bytes.Repeat([]byte{0x91}, 2000), 0xc0)
	for _, c := range []struct {
		name   string
		stream []byte
		want   error
	}{
		{"nested too deep", deep, errFrameTooDeep},
		{"maps nested too deep", bytes.Repeat([]byte{0x81, 0xc0}, 2000), errFrameTooDeep},
		{"a byte that is no MessagePack", []byte{0x92, 0x01, 0xc1}, errFrameInvalid},
		{"claims 4 GiB of bytes", []byte{0xc6, 0xff, 0xff, 0xff, 0xff, 1}, errFrameTooLarge},
		{"more bytes than allowed", msgp.AppendBytes(nil, make([]byte, 2<<20)), errFrameTooLarge},
		{"claims 4 Gi elements and ends", []byte{0xdd, 0xff, 0xff, 0xff, 0xff, 1}, io.ErrUnexpectedEOF},
		{"ends in the middle", []byte{0x93, 0x01}, io.ErrUnexpectedEOF},
		{"ends in a head", []byte{0xc6, 0x00}, io.ErrUnexpectedEOF},
		{"nothing", nil, io.EOF},
	} {
		f := newFrames(bytes.NewReader(c.stream), 1<<20, 1024)
		if _, err := f.next(); !errors.Is(err, c.want) {
			t.Errorf("%s: %v; want %v", c.name, err, c.want)
		}
	}
}

// A message that claims to be large costs memory only as it comes.
func TestFramesDoesNotTrustALength(t *testing.T) {
	claim := []byte{0xc6, 0x03, 0xff, 0xff, 0xff} // just under 64 MiB
	f := newFrames(io.MultiReader(bytes.NewReader(claim), iotest.ErrReader(io.ErrClosedPipe)), 65<<20, 1024)
	if _, err := f.next(); !errors.Is(err, io.ErrClosedPipe) {
		t.Fatalf("next: %v", err)
	}
	if cap(f.buf) > 2*firstBuffer {
		t.Errorf("buffer grew to %d bytes for 5 that came", cap(f.buf))
	}
}

func TestFramesLetsGoOfALargeBuffer(t *testing.T) {
	stream := append(msgp.AppendBytes(nil, make([]byte, 1<<20)), 0xc0)
	f := newFrames(bytes.NewReader(stream), 2<<20, 1024)
	for range 2 {
		if _, err := f.next(); err != nil {
			t.Fatal(err)
		}
	}
	if cap(f.buf) > keepBuffer {
		t.Errorf("an idle connection keeps %d bytes", cap(f.buf))
	}
}

func FuzzFrames(f *testing.F) {
	f.Add([]byte{0x94, 0x00, 0x01, 0xa4, 'p', 'i', 'n', 'g', 0x90})
	f.Add([]byte{0xdf, 0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{0xc1})
	f.Fuzz(func(t *testing.T, b []byte) {
		fr := newFrames(bytes.NewReader(b), 1<<20, 100)
		total := 0
		for {
			obj, err := fr.next()
			if err != nil {
				return
			}
			if rest, err := msgp.Skip(obj); err != nil || len(rest) != 0 {
				t.Fatalf("an object of %d bytes is none: rest %d, %v", len(obj), len(rest), err)
			}
			if total += len(obj); total > len(b) {
				t.Fatal("more came out than went in")
			}
		}
	})
}

func TestCheckPacked(t *testing.T) {
	for _, c := range []struct {
		name string
		in   []byte
		ok   bool
	}{
		{"a map", []byte{0x81, 0xa1, 'a', 0x01}, true},
		{"two values", []byte{0x01, 0x02}, false},
		{"a part", []byte{0x92, 0x01}, false},
		{"nothing", nil, false},
		{"a string that is not there", []byte{0xd9, 0x05, 'a'}, false},
	} {
		if err := checkPacked(c.in, 10); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
