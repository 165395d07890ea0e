package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/tinylib/msgp/msgp"

	"saltern/proxy/server"
)

// hello is what a daemon says of itself on Salt's side.
type hello struct {
	Version   string
	Protocol  int64
	Namespace string
}

// helloTimeout is more than the returner itself waits.
const helloTimeout = 3 * time.Second

// maxHello bounds the answer to hello.
const maxHello = 64 << 10

// sayHello connects to an address of Salt's side (unix:PATH or tcp:HOST:PORT) and shakes hands as
// the returner does; see docs/protocol.md.
func sayHello(ctx context.Context, address string) (hello, error) {
	params := msgp.AppendArrayHeader(nil, 1)
	params = msgp.AppendMapHeader(params, 3)
	params = msgp.AppendInt(msgp.AppendString(params, "protocol"), server.Protocol)
	params = msgp.AppendString(msgp.AppendString(params, "role"), "doctor")
	params = msgp.AppendString(msgp.AppendString(params, "saltern"), versionString())
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	result, err := callRPC(ctx, address, "hello", params, maxHello)
	if err != nil {
		return hello{}, err
	}
	return parseHello(result)
}

// callRPC makes one call on a connection of its own and gives the result, of at most most bytes.
// params is a packed array.
func callRPC(ctx context.Context, address, method string, params []byte, most int) (any, error) {
	network, addr, _ := strings.Cut(address, ":")
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return nil, err
	}
	request := msgp.AppendArrayHeader(nil, 4)
	request = msgp.AppendInt(request, 0) // a request
	request = msgp.AppendInt(request, 1)
	request = msgp.AppendString(request, method)
	if _, err := conn.Write(append(request, params...)); err != nil {
		return nil, err
	}
	answer, err := readMessage(conn, most)
	if err != nil {
		return nil, err
	}
	return parseAnswer(answer, method)
}

// readMessage reads one whole MessagePack value.
func readMessage(conn net.Conn, most int) ([]byte, error) {
	var message []byte
	chunk := make([]byte, 4<<10)
	for len(message) < most {
		n, err := conn.Read(chunk)
		message = append(message, chunk[:n]...)
		_, skipErr := msgp.Skip(message)
		if skipErr == nil {
			return message, nil
		}
		if !errors.Is(skipErr, msgp.ErrShortBytes) {
			return nil, fmt.Errorf("the answer is no MessagePack: %w", skipErr)
		}
		if err != nil {
			return nil, fmt.Errorf("the connection ended before the answer: %w", err)
		}
	}
	return nil, errors.New("the answer is too long")
}

// parseAnswer reads [1, msgid, error, result].
func parseAnswer(message []byte, method string) (any, error) {
	value, _, err := msgp.ReadIntfBytes(message)
	if err != nil {
		return nil, fmt.Errorf("the answer to %s: %w", method, err)
	}
	answer, ok := value.([]any)
	if !ok || len(answer) != 4 {
		return nil, fmt.Errorf("the answer to %s is none of MessagePack-RPC", method)
	}
	if refusal, ok := answer[2].([]any); ok && len(refusal) == 2 {
		return nil, &refusedError{name: fmt.Sprint(refusal[0]), message: fmt.Sprint(refusal[1])}
	}
	return answer[3], nil
}

func parseHello(value any) (hello, error) {
	result, ok := value.(map[string]any)
	if !ok {
		return hello{}, errors.New("the answer to hello has no result")
	}
	var h hello
	h.Version, _ = result["version"].(string)
	h.Namespace, _ = result["namespace"].(string)
	switch p := result["protocol"].(type) {
	case int64:
		h.Protocol = p
	case uint64:
		h.Protocol = int64(p)
	}
	return h, nil
}

// refusedError is an error that the daemon answered with.
type refusedError struct{ name, message string }

func (e *refusedError) Error() string { return e.name + ": " + e.message }
