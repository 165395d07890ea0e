package server

import (
	"errors"
	"net"
	"path/filepath"
	"testing"

	"github.com/tinylib/msgp/msgp"
)

// caller is a client on one connection, as the returner is one.
type caller struct {
	t      *testing.T
	c      net.Conn
	frames *frames
	id     uint32
}

func newCaller(t *testing.T, c net.Conn) *caller {
	t.Cleanup(func() { _ = c.Close() })
	return &caller{t: t, c: c, frames: newFrames(c, 1<<30, 2048)}
}

// reply is an answer: its result as MessagePack, or an error.
type reply struct {
	id            uint32
	result        []byte
	name, message string // of an error
}

func frameOf(id uint32, method string, params ...any) []byte {
	return pack([]any{0, id, method, params})
}

// send sends a request without waiting for its answer.
func (c *caller) send(method string, params ...any) {
	c.t.Helper()
	c.id++
	c.write(frameOf(c.id, method, params...))
}

func (c *caller) write(b []byte) {
	c.t.Helper()
	if _, err := c.c.Write(b); err != nil {
		c.t.Fatalf("write: %v", err)
	}
}

// receive reads the next answer. The error is that of the connection.
func (c *caller) receive() (reply, error) {
	frame, err := c.frames.next()
	if err != nil {
		return reply{}, err
	}
	return readReply(frame)
}

func readReply(frame []byte) (reply, error) {
	var r reply
	n, b, err := msgp.ReadArrayHeaderBytes(frame)
	if err != nil || n != 4 {
		return r, errors.New("the answer is no array of 4")
	}
	kind, b, err := msgp.ReadIntBytes(b)
	if err != nil || kind != 1 {
		return r, errors.New("the answer is none")
	}
	if r.id, b, err = msgp.ReadUint32Bytes(b); err != nil {
		return r, err
	}
	if msgp.IsNil(b) {
		r.result = append([]byte(nil), b[1:]...)
		return r, nil
	}
	if _, b, err = msgp.ReadArrayHeaderBytes(b); err != nil {
		return r, err
	}
	if r.name, b, err = msgp.ReadStringBytes(b); err != nil {
		return r, err
	}
	r.message, _, err = msgp.ReadStringBytes(b)
	return r, err
}

// call sends a request and gives its answer.
func (c *caller) call(method string, params ...any) reply {
	c.t.Helper()
	c.send(method, params...)
	r, err := c.receive()
	if err != nil {
		c.t.Fatalf("%s: no answer: %v", method, err)
	}
	if r.id != c.id {
		c.t.Fatalf("%s: the answer is to %d, not to %d", method, r.id, c.id)
	}
	return r
}

// want calls and compares the result, as the view shows it.
func (c *caller) want(want string, method string, params ...any) {
	c.t.Helper()
	r := c.call(method, params...)
	if r.name != "" {
		c.t.Errorf("%s: %s: %s", method, r.name, r.message)
		return
	}
	if got := viewOf(r.result); got != want {
		c.t.Errorf("%s = %s\nwant %s", method, got, want)
	}
}

// closed says that the connection has to be closed by the server, with nothing more on it.
func (c *caller) closed() {
	c.t.Helper()
	if r, err := c.receive(); err == nil {
		c.t.Errorf("the connection is open, and has %+v", r)
	}
}

// hub is an RPC server on a Unix socket.
type hub struct {
	t    *testing.T
	rpc  *RPC
	path string
}

func newHub(t *testing.T, jobs Jobs, limits Limits) *hub {
	t.Helper()
	h := &hub{t: t, path: filepath.Join(t.TempDir(), "s.sock")}
	h.rpc = NewRPC(RPCOptions{Jobs: jobs, Limits: limits, Version: "1.2.3", Namespace: "ns", Logger: quiet()})
	l, err := Listen("unix:"+h.path, 0o660, "")
	if err != nil {
		t.Fatal(err)
	}
	h.rpc.Serve(l)
	t.Cleanup(func() { _ = h.rpc.Shutdown(t.Context()) })
	return h
}

func (h *hub) dial() *caller {
	h.t.Helper()
	c, err := net.Dial("unix", h.path)
	if err != nil {
		h.t.Fatal(err)
	}
	return newCaller(h.t, c)
}
