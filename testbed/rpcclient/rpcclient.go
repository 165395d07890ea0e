// Package rpcclient is a small client of the daemon's MessagePack-RPC (docs/protocol.md) for tests and tools. It
// shares no code with the daemon, so that a fault in one is not a fault in both.
package rpcclient

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/tinylib/msgp/msgp"
)

// Client is one connection. Its calls are made one at a time; several goroutines may share it.
type Client struct {
	mu   sync.Mutex // held for a whole call
	conn net.Conn
	in   *msgp.Reader
	out  *msgp.Writer
	next int64
}

// Error is an answer of the daemon that is an error, such as Name "busy".
type Error struct{ Name, Message string }

// Error gives name and message.
func (e *Error) Error() string { return e.Name + ": " + e.Message }

// ErrBroken is a connection on which no further call can be made.
var ErrBroken = errors.New("the connection is broken")

// Dial connects to "unix" and a path, or "tcp" and host:port.
func Dial(network, address string) (*Client, error) {
	conn, err := net.Dial(network, address)
	if err != nil {
		return nil, err
	}
	return &Client{conn: conn, in: msgp.NewReader(conn), out: msgp.NewWriter(conn)}, nil
}

// Close closes the connection, also under a call.
func (c *Client) Close() error { return c.conn.Close() }

// Call makes one request and gives its result: nil, bool, int64 or uint64, float64, string, []byte (bin),
// []any or map[string]any. After an error that is not *Error the connection is of no more use.
func (c *Client) Call(ctx context.Context, method string, params ...any) (any, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	deadline, _ := ctx.Deadline()
	if err := c.conn.SetDeadline(deadline); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", method, ErrBroken, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = c.conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	c.next++
	if params == nil {
		params = []any{}
	}
	if err := c.out.WriteIntf([]any{0, c.next, method, params}); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", method, ErrBroken, err)
	}
	if err := c.out.Flush(); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", method, ErrBroken, err)
	}
	answer, err := c.in.ReadIntf()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", method, ErrBroken, err)
	}
	fields, ok := answer.([]any)
	if !ok || len(fields) != 4 || fields[0] != int64(1) || fmt.Sprint(fields[1]) != fmt.Sprint(c.next) { // from 128 on the msgid is a uint64
		return nil, fmt.Errorf("%s: %w: the answer is not one to this request: %.200v", method, ErrBroken, answer)
	}
	if fields[2] == nil {
		return fields[3], nil
	}
	named, ok := fields[2].([]any)
	if !ok || len(named) != 2 {
		return nil, fmt.Errorf("%s: %w: the error is no [name, message]", method, ErrBroken)
	}
	return nil, &Error{Name: fmt.Sprint(named[0]), Message: fmt.Sprint(named[1])}
}

// Packed is a value as the `packed` of docs/protocol.md.
func Packed(value any) []byte {
	packed, err := msgp.AppendIntf(nil, value)
	if err != nil {
		panic(fmt.Sprintf("rpcclient: a test packs %T: %v", value, err))
	}
	return packed
}
