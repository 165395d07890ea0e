package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tinylib/msgp/msgp"

	"saltern/telemetry"
	"saltern/tiers"
)

// Protocol is the version of the wire that this server speaks; see docs/protocol.md.
const Protocol = 1

// Limits bound what a client may ask of the server. Zero fields take the defaults named.
type Limits struct {
	// MaxPayload is the largest payload in a message, in bytes; default 64 MiB. A message may have
	// 1 MiB around it.
	MaxPayload int
	// MaxDepth bounds the nesting of messages and of payloads; default 1024.
	MaxDepth int
	// MaxConnections is how many connections are served at a time; default 4096.
	MaxConnections int
	// MaxInFlight is how many requests are worked on at a time, others are told busy; default 512.
	MaxInFlight int
	// IdleTimeout closes a connection on which nothing comes; default 10 min.
	IdleTimeout time.Duration
	// MessageTimeout is how long a message may take to come once it has begun, and an answer to
	// go; default 30 s.
	MessageTimeout time.Duration
}

func (l Limits) withDefaults() Limits {
	l.MaxPayload = cmp.Or(l.MaxPayload, 64<<20)
	l.MaxDepth = cmp.Or(l.MaxDepth, 1024)
	l.MaxConnections = cmp.Or(l.MaxConnections, 4096)
	l.MaxInFlight = cmp.Or(l.MaxInFlight, 512)
	l.IdleTimeout = cmp.Or(l.IdleTimeout, 10*time.Minute)
	l.MessageTimeout = cmp.Or(l.MessageTimeout, 30*time.Second)
	return l
}

const (
	// aroundPayload is what a message may have beside its payload: its headers, lists of minions.
	aroundPayload = 1 << 20
	// aroundDepth is how deep in an answer a payload may stand. Python's decoder ends at 1024 too: a
	// return that filled the depth would make the answer with all returns of its job unreadable.
	aroundDepth = 8
	// largeMessage is from when on a message counts as large.
	largeMessage = 1 << 20
	// maxLarge is how many large messages are read and worked on at a time; others wait. It bounds
	// the memory that clients can make the server hold to about four times MaxPayload.
	maxLarge = 4
)

// RPCOptions configure an RPC server.
type RPCOptions struct {
	Jobs      Jobs
	Journal   Journal // nil where there is none
	Telemetry *telemetry.Recorder
	Backup    Backup // nil where the store cannot be copied
	Limits    Limits
	Version   string // of the daemon
	Namespace string
	Logger    *slog.Logger
	LogLevel  *slog.LevelVar // of Logger, where it can be changed
}

// RPC serves Salt's side: MessagePack-RPC on any number of listeners.
type RPC struct {
	o        RPCOptions
	inFlight chan struct{}
	large    chan struct{}
	stopping atomic.Bool
	backups  backups

	mu    sync.Mutex // guards conns, lns
	conns map[net.Conn]struct{}
	lns   []net.Listener
	wg    sync.WaitGroup // connections and accept loops
}

// NewRPC makes a server; Serve starts it on a listener.
func NewRPC(o RPCOptions) *RPC {
	o.Limits = o.Limits.withDefaults()
	o.Logger = cmp.Or(o.Logger, slog.Default())
	return &RPC{
		o:        o,
		inFlight: make(chan struct{}, o.Limits.MaxInFlight),
		large:    make(chan struct{}, maxLarge),
		conns:    make(map[net.Conn]struct{}),
	}
}

// Serve accepts connections until Shutdown. It takes over the listener and does not wait.
func (s *RPC) Serve(l net.Listener) {
	s.mu.Lock()
	s.lns = append(s.lns, l)
	s.mu.Unlock()
	s.wg.Go(func() { s.accept(l) })
}

func (s *RPC) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err == nil {
			s.admit(c)
			continue
		}
		if s.stopping.Load() || errors.Is(err, net.ErrClosed) {
			return
		}
		// Out of file descriptors, most likely. Those that are there are served; wait for one to go.
		s.o.Logger.Warn("connection not accepted", "addr", l.Addr().String(), "err", err)
		time.Sleep(100 * time.Millisecond)
	}
}

func (s *RPC) admit(c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping.Load() || len(s.conns) >= s.o.Limits.MaxConnections {
		_ = c.Close()
		return
	}
	s.conns[c] = struct{}{}
	s.wg.Go(func() {
		s.serveConn(c)
		_ = c.Close()
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
	})
}

// Shutdown stops accepting, lets the requests that are being worked on finish and be answered,
// refuses those that come after them, and closes all connections, at the latest when ctx ends.
func (s *RPC) Shutdown(ctx context.Context) error {
	s.stopping.Store(true)
	s.mu.Lock()
	for _, l := range s.lns {
		_ = l.Close()
	}
	for c := range s.conns {
		_ = c.SetReadDeadline(time.Now()) // wakes the idle ones; the others see stopping
	}
	s.mu.Unlock()
	done := make(chan struct{})
	go func() {
		s.wg.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		_ = c.Close()
	}
	return fmt.Errorf("%d connections were cut off: %w", len(s.conns), context.Cause(ctx))
}

// conn is one connection; it is used by one goroutine.
type conn struct {
	s      *RPC
	c      net.Conn
	frames *frames
	out    []byte
	large  bool // holds a place among the large messages
	call   telemetry.Call
	ctx    context.Context // carries call
	due    time.Time       // when the message under way has to be whole; zero before it began
}

func (s *RPC) serveConn(c net.Conn) {
	k := &conn{s: s, c: c}
	k.ctx = telemetry.WithCall(context.Background(), &k.call)
	k.frames = newFrames(k, s.o.Limits.MaxPayload+aroundPayload, s.o.Limits.MaxDepth)
	defer k.release()
	for k.serveOne() {
	}
}

// serveOne reads a request and answers it, and says whether the connection can go on.
func (k *conn) serveOne() bool {
	k.release()
	frame, err := k.frames.next()
	if err != nil {
		k.refuse(err)
		return false
	}
	return k.answer(frame)
}

// Read reads from the connection for frames, with the deadline that fits, and takes a place among
// the large messages when the message grows large.
func (k *conn) Read(b []byte) (int, error) {
	begun := k.frames.buffered()
	if begun && !k.large && len(k.frames.partial()) >= largeMessage {
		k.s.large <- struct{}{}
		k.large = true
		k.due = time.Time{} // the wait for the place is not the client's
	}
	deadline := time.Now().Add(k.s.o.Limits.IdleTimeout)
	if begun {
		// One deadline for the whole message: a client that sends a byte now and then gets no more.
		if k.due.IsZero() {
			k.due = time.Now().Add(k.s.o.Limits.MessageTimeout)
		}
		deadline = k.due
	}
	_ = k.c.SetReadDeadline(deadline)
	if k.s.stopping.Load() {
		// Set again: Shutdown may have set its own between the check and the line above.
		_ = k.c.SetReadDeadline(time.Now())
	}
	return k.c.Read(b)
}

// release ends a message and gives back what a large one took.
func (k *conn) release() {
	k.due = time.Time{}
	if k.large {
		<-k.s.large
		k.large = false
	}
	if cap(k.out) > keepBuffer {
		k.out = nil
	}
}

// refuse answers a message that could not be read, where its msgid came through.
func (k *conn) refuse(err error) {
	switch {
	case errors.Is(err, errFrameTooLarge):
		err = fmt.Errorf("%w: %w", tiers.ErrTooLarge, err)
	case errors.Is(err, errFrameTooDeep), errors.Is(err, errFrameInvalid):
		err = fmt.Errorf("%w: %w", tiers.ErrInvalid, err)
	default:
		if !errors.Is(err, io.EOF) && !isTimeout(err) {
			k.s.o.Logger.Debug("connection ended", "err", err)
		}
		return
	}
	if r, headErr := readRequest(k.frames.partial()); headErr == nil {
		k.send(appendError(k.out[:0], r.id, err))
		k.drain()
	}
}

// drain takes in what the client is still sending, for a second at most: the end of the connection
// would break a write that is under way, and its client would never read the answer.
func (k *conn) drain() {
	_ = k.c.SetReadDeadline(time.Now().Add(time.Second))
	_, _ = io.Copy(io.Discard, k.c)
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

// request is the head of a message.
type request struct {
	id     uint32
	method string
	params []byte // the array, and whatever follows the message
}

// errNotRequest is returned for a message that is no request.
var errNotRequest = fmt.Errorf("%w: not a MessagePack-RPC request", tiers.ErrInvalid)

// readRequest reads the head of a message. The id is right also with some errors; it is 0 where
// there was none.
func readRequest(frame []byte) (request, error) {
	var r request
	n, b, err := msgp.ReadArrayHeaderBytes(frame)
	if err != nil || n != 4 {
		return r, errNotRequest
	}
	kind, b, err := msgp.ReadUint64Bytes(b)
	if err != nil || kind != 0 {
		return r, errNotRequest
	}
	if r.id, b, err = msgp.ReadUint32Bytes(b); err != nil {
		return r, errNotRequest
	}
	method, b, err := msgp.ReadStringZC(b)
	if err != nil {
		return r, errNotRequest
	}
	r.method, r.params = string(method), b
	return r, nil
}

// answer works on one request and sends what came of it.
func (k *conn) answer(frame []byte) bool {
	r, err := readRequest(frame)
	if err != nil {
		k.send(appendError(k.out[:0], r.id, err))
		return false
	}
	k.call.Begin(methodName(r.method))
	select {
	case k.s.inFlight <- struct{}{}:
	default:
		k.finish(k.out[:0], errBusy)
		return k.send(appendError(k.out[:0], r.id, errBusy))
	}
	out, err := k.run(r)
	<-k.s.inFlight
	k.finish(out, err)
	if err != nil {
		out = appendError(out[:0], r.id, err)
	}
	return k.send(out)
}

// run runs the method of a request. A panic in it is a fault of ours: the client gets an error,
// and the daemon goes on for the others.
func (k *conn) run(r request) (out []byte, err error) {
	defer func() {
		if fault := recover(); fault != nil {
			k.s.o.Logger.Error("call panicked", "method", r.method, "fault", fmt.Sprintf("%T", fault),
				"stack", stack())
			out, err = k.out[:0], fmt.Errorf("%w: internal fault in %s, see the log of saltern",
				tiers.ErrUnavailable, r.method)
		}
	}()
	method, known := methods[r.method]
	if !known {
		return k.out[:0], fmt.Errorf("%w: no method %q", errUnsupported, clip(r.method))
	}
	if k.s.stopping.Load() {
		return k.out[:0], fmt.Errorf("%w: saltern is stopping", tiers.ErrUnavailable)
	}
	out = appendResult(k.out[:0], r.id)
	p := newParams(r.params, k.s.o.Limits)
	out, err = method(k.s, k.ctx, out, p)
	k.call.Traceparent = p.traceparent()
	return out, err
}

// methodName is the method as metrics have it: what a client made up is not in them.
func methodName(m string) string {
	if _, known := methods[m]; known {
		return m
	}
	return "unknown"
}

// finish ends the record of a request.
func (k *conn) finish(out []byte, err error) {
	k.call.Bytes = len(out)
	if err != nil {
		k.call.Error = errorName(err)
	}
	k.s.o.Telemetry.Finish(&k.call)
}

// clip shortens what a client sent, for a message.
func clip(s string) string {
	if len(s) > 64 {
		return s[:64] + "…"
	}
	return s
}

func (k *conn) send(out []byte) bool {
	k.out = out
	_ = k.c.SetWriteDeadline(time.Now().Add(k.s.o.Limits.MessageTimeout))
	_, err := k.c.Write(out)
	return err == nil
}

// appendResult begins an answer; the result follows.
func appendResult(out []byte, id uint32) []byte {
	out = msgp.AppendArrayHeader(out, 4)
	out = msgp.AppendInt(out, 1)
	out = msgp.AppendUint32(out, id)
	return msgp.AppendNil(out)
}

// appendError is a whole answer with an error.
func appendError(out []byte, id uint32, err error) []byte {
	out = msgp.AppendArrayHeader(out, 4)
	out = msgp.AppendInt(out, 1)
	out = msgp.AppendUint32(out, id)
	out = msgp.AppendArrayHeader(out, 2)
	out = msgp.AppendString(out, errorName(err))
	out = msgp.AppendString(out, err.Error())
	return msgp.AppendNil(out)
}
