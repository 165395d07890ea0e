package server

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// This file cuts a stream into MessagePack objects without decoding them, bounded in bytes and in
// nesting. MessagePack-RPC has no framing: where a message ends shows only by walking through it.

// Reasons for which a stream cannot be read on; the connection is closed after the answer.
var (
	errFrameTooLarge = errors.New("message is larger than allowed")
	errFrameTooDeep  = errors.New("message is nested deeper than allowed")
	errFrameInvalid  = errors.New("message is not MessagePack")
)

// walker walks through MessagePack in pieces, as they come. The zero value is not ready; see reset.
type walker struct {
	pos   int      // bytes of the object walked through, or to be skipped
	left  []uint64 // elements still to come, by level; empty: the object is whole
	depth int
}

func (w *walker) reset(depth int) {
	w.pos, w.depth = 0, depth
	w.left = append(w.left[:0], 1)
}

// walk goes on in buf, which holds the object from its first byte, and says whether it is whole.
// When it is not, at least one more byte than pos is needed.
func (w *walker) walk(buf []byte) (whole bool, err error) {
	for len(w.left) > 0 {
		head, body, elements, container, short := element(buf, w.pos)
		if short {
			return false, nil
		}
		if head == 0 {
			return false, errFrameInvalid
		}
		w.pos += head + body
		w.left[len(w.left)-1]--
		if container && elements > 0 {
			if len(w.left) > w.depth {
				return false, errFrameTooDeep
			}
			w.left = append(w.left, elements)
		}
		for len(w.left) > 0 && w.left[len(w.left)-1] == 0 {
			w.left = w.left[:len(w.left)-1]
		}
	}
	return w.pos <= len(buf), nil
}

// element reads the head of the element at pos: the size of its head (0: no such element), of its
// body, and how many elements it contains. short means that the head is not there as a whole.
func element(buf []byte, pos int) (head, body int, elements uint64, container, short bool) {
	if pos >= len(buf) {
		return 0, 0, 0, false, true
	}
	lead := buf[pos]
	switch {
	case lead <= 0x7f, lead >= 0xe0: // fixint
		return 1, 0, 0, false, false
	case lead <= 0x8f: // fixmap
		return 1, 0, 2 * uint64(lead&0x0f), true, false
	case lead <= 0x9f: // fixarray
		return 1, 0, uint64(lead & 0x0f), true, false
	case lead <= 0xbf: // fixstr
		return 1, int(lead & 0x1f), 0, false, false
	}
	shape := shapes[lead-0xc0]
	if shape.head == 0 {
		return 0, 0, 0, false, false
	}
	if pos+1+shape.length > len(buf) {
		return 0, 0, 0, false, true
	}
	n := lengthOf(buf[pos+1 : pos+1+shape.length])
	if shape.per > 0 {
		return shape.head, 0, n * uint64(shape.per), true, false
	}
	return shape.head, shape.body + int(n), 0, false, false
}

// shape is how an element with a lead byte of 0xc0 to 0xdf is laid out: the size of its head, of
// the length in it, of a body without a length, and for a container how many elements a count
// stands for.
type shape struct{ head, length, body, per int }

var shapes = [32]shape{
	{head: 1},                     // c0 nil
	{},                            // c1 never used
	{head: 1},                     // c2 false
	{head: 1},                     // c3 true
	{head: 2, length: 1},          // c4 bin 8
	{head: 3, length: 2},          // c5 bin 16
	{head: 5, length: 4},          // c6 bin 32
	{head: 2, length: 1, body: 1}, // c7 ext 8: the type follows the length
	{head: 3, length: 2, body: 1}, // c8 ext 16
	{head: 5, length: 4, body: 1}, // c9 ext 32
	{head: 1, body: 4},            // ca float 32
	{head: 1, body: 8},            // cb float 64
	{head: 1, body: 1},            // cc uint 8
	{head: 1, body: 2},            // cd uint 16
	{head: 1, body: 4},            // ce uint 32
	{head: 1, body: 8},            // cf uint 64
	{head: 1, body: 1},            // d0 int 8
	{head: 1, body: 2},            // d1 int 16
	{head: 1, body: 4},            // d2 int 32
	{head: 1, body: 8},            // d3 int 64
	{head: 1, body: 2},            // d4 fixext 1
	{head: 1, body: 3},            // d5 fixext 2
	{head: 1, body: 5},            // d6 fixext 4
	{head: 1, body: 9},            // d7 fixext 8
	{head: 1, body: 17},           // d8 fixext 16
	{head: 2, length: 1},          // d9 str 8
	{head: 3, length: 2},          // da str 16
	{head: 5, length: 4},          // db str 32
	{head: 3, length: 2, per: 1},  // dc array 16
	{head: 5, length: 4, per: 1},  // dd array 32
	{head: 3, length: 2, per: 2},  // de map 16
	{head: 5, length: 4, per: 2},  // df map 32
}

func lengthOf(b []byte) uint64 {
	switch len(b) {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(binary.BigEndian.Uint16(b))
	case 4:
		return uint64(binary.BigEndian.Uint32(b))
	default:
		return 0
	}
}

// checkPacked says what is wrong with a payload: it has to be one whole MessagePack value, since it
// becomes a part of answers, where a broken one would break what stands around it.
func checkPacked(b []byte, depth int) error {
	var w walker
	w.reset(depth)
	whole, err := w.walk(b)
	if err != nil {
		return err
	}
	if !whole || w.pos != len(b) {
		return errFrameInvalid
	}
	return nil
}

// frames reads objects from a stream. Not safe for concurrent use.
type frames struct {
	r        io.Reader
	maxBytes int
	depth    int
	buf      []byte // what was read; the object under way starts at start
	start    int
	walker   walker
}

const (
	// firstBuffer holds most requests: a return of some kilobytes.
	firstBuffer = 16 << 10
	// keepBuffer is the largest buffer that an idle connection keeps.
	keepBuffer = 256 << 10
)

func newFrames(r io.Reader, maxBytes, depth int) *frames {
	return &frames{r: r, maxBytes: maxBytes, depth: depth, buf: make([]byte, 0, firstBuffer)}
}

// next gives the next object. It is valid until the call after. io.EOF means that the stream ended
// between objects. After errFrame… the first bytes of the object are in partial.
func (f *frames) next() ([]byte, error) {
	f.compact()
	f.walker.reset(f.depth)
	for {
		whole, err := f.walker.walk(f.buf[f.start:])
		if err != nil {
			return nil, err
		}
		if whole {
			obj := f.buf[f.start : f.start+f.walker.pos]
			f.start += f.walker.pos
			return obj, nil
		}
		if err := f.more(); err != nil {
			return nil, err
		}
	}
}

// buffered says whether another object has at least begun to come.
func (f *frames) buffered() bool { return f.start < len(f.buf) }

// partial is what came of the object under way.
func (f *frames) partial() []byte { return f.buf[f.start:] }

// compact moves what is left of the stream to the front, and lets go of a buffer that one large
// object made.
func (f *frames) compact() {
	rest := f.buf[f.start:]
	if cap(f.buf) > keepBuffer && len(rest) < firstBuffer {
		f.buf = append(make([]byte, 0, firstBuffer), rest...)
	} else {
		f.buf = f.buf[:copy(f.buf[:cap(f.buf)], rest)]
	}
	f.start = 0
}

// more reads more of the stream. It makes room for what has been announced only as it comes, so a
// message that claims to be large costs nothing until it is.
func (f *frames) more() error {
	have := len(f.buf) - f.start
	if have >= f.maxBytes || f.walker.pos > f.maxBytes {
		return fmt.Errorf("%w: the limit is %d bytes", errFrameTooLarge, f.maxBytes)
	}
	if len(f.buf) == cap(f.buf) {
		grown := min(2*cap(f.buf), f.start+f.maxBytes)
		f.buf = append(make([]byte, 0, max(grown, cap(f.buf)+1)), f.buf...)
	}
	n, err := f.r.Read(f.buf[len(f.buf):cap(f.buf)])
	f.buf = f.buf[:len(f.buf)+n]
	if n > 0 {
		return nil
	}
	if errors.Is(err, io.EOF) && have > 0 {
		return io.ErrUnexpectedEOF
	}
	return err
}
