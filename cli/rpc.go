package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/tinylib/msgp/msgp"

	"saltern/configs"
)

// rpcConn is a connection to Salt's side of the daemon for commands that make many calls, of which
// each goes and comes packed. One goroutine uses it.
type rpcConn struct {
	address string
	conn    net.Conn
	in      *bufio.Reader
	next    uint32
}

// callTimeout bounds one call; lists of a large store take their time.
const callTimeout = 60 * time.Second

// maxCall bounds an answer: the payload of the largest value and what stands around it.
const maxCall = 512 << 20

// daemonAddress is the address that serve would listen on, unless another is named.
func daemonAddress(flag string) string {
	if flag != "" {
		return flag
	}
	c := configs.Default()
	c.Resolve(configs.ProcessEnv())
	return c.Listen[0]
}

func dialRPC(ctx context.Context, address string) (*rpcConn, error) {
	address = daemonAddress(address)
	network, addr, _ := strings.Cut(address, ":")
	dialer := net.Dialer{Timeout: 2 * time.Second}
	conn, err := dialer.DialContext(ctx, network, addr)
	if err != nil {
		return nil, &ExitError{Code: ExitUnreachable, Err: fmt.Errorf(
			"the daemon at %s cannot be asked: %w (another address: --address unix:PATH)", address, err)}
	}
	return &rpcConn{address: address, conn: conn, in: bufio.NewReaderSize(conn, 64<<10)}, nil
}

func (c *rpcConn) Close() error { return c.conn.Close() }

// call makes a call with packed parameters, an array, and gives the packed result. A refusal is a
// refusedError in an ExitError.
func (c *rpcConn) call(ctx context.Context, method string, params []byte) ([]byte, error) {
	c.next++
	request := msgp.AppendArrayHeader(nil, 4)
	request = msgp.AppendInt(request, 0) // a request
	request = msgp.AppendUint32(request, c.next)
	request = append(msgp.AppendString(request, method), params...)
	answer, err := c.exchange(ctx, request)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, &ExitError{Code: ExitUnreachable, Err: fmt.Errorf("the daemon at %s: %w", c.address, err)}
	}
	result, err := readResult(answer)
	var refused *refusedError
	if errors.As(err, &refused) {
		return nil, &ExitError{Code: ExitRefused, Err: err}
	}
	return result, err
}

func (c *rpcConn) exchange(ctx context.Context, request []byte) ([]byte, error) {
	if err := c.conn.SetDeadline(time.Now().Add(callTimeout)); err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { _ = c.conn.SetDeadline(time.Unix(1, 0)) })()
	if _, err := c.conn.Write(request); err != nil {
		return nil, err
	}
	r := msgp.NewReader(io.LimitReader(c.in, maxCall))
	var raw msgp.Raw
	if err := raw.DecodeMsg(r); err != nil {
		return nil, err
	}
	if r.Buffered() > 0 {
		return nil, errors.New("more was sent than was asked for")
	}
	return raw, nil
}

// readResult takes the result out of [1, msgid, error, result].
func readResult(answer []byte) ([]byte, error) {
	n, rest, err := msgp.ReadArrayHeaderBytes(answer)
	if err != nil || n != 4 {
		return nil, errors.New("the answer is none of MessagePack-RPC")
	}
	for range 2 {
		if rest, err = msgp.Skip(rest); err != nil {
			return nil, err
		}
	}
	if msgp.IsNil(rest) {
		return rest[1:], nil
	}
	value, _, err := msgp.ReadIntfBytes(rest)
	if err != nil {
		return nil, err
	}
	if refusal, ok := value.([]any); ok && len(refusal) == 2 {
		return nil, &refusedError{name: fmt.Sprint(refusal[0]), message: harmless(fmt.Sprint(refusal[1]))}
	}
	return nil, errors.New("the answer is none of MessagePack-RPC")
}
