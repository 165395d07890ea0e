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
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	network, addr, _ := strings.Cut(address, ":")
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, network, addr)
	if err != nil {
		return hello{}, err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return hello{}, err
	}
	if _, err := conn.Write(helloRequest()); err != nil {
		return hello{}, err
	}
	answer, err := readMessage(conn)
	if err != nil {
		return hello{}, err
	}
	return parseHello(answer)
}

func helloRequest() []byte {
	b := msgp.AppendArrayHeader(nil, 4)
	b = msgp.AppendInt(b, 0) // a request
	b = msgp.AppendInt(b, 1)
	b = msgp.AppendString(b, "hello")
	b = msgp.AppendArrayHeader(b, 1)
	b = msgp.AppendMapHeader(b, 3)
	b = msgp.AppendInt(msgp.AppendString(b, "protocol"), server.Protocol)
	b = msgp.AppendString(msgp.AppendString(b, "role"), "doctor")
	return msgp.AppendString(msgp.AppendString(b, "saltern"), versionString())
}

// readMessage reads one whole MessagePack value.
func readMessage(conn net.Conn) ([]byte, error) {
	var message []byte
	chunk := make([]byte, 4<<10)
	for len(message) < maxHello {
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
	return nil, errors.New("the answer to hello is too long")
}

// parseHello reads [1, msgid, error, result].
func parseHello(message []byte) (hello, error) {
	value, _, err := msgp.ReadIntfBytes(message)
	if err != nil {
		return hello{}, fmt.Errorf("the answer to hello: %w", err)
	}
	answer, ok := value.([]any)
	if !ok || len(answer) != 4 {
		return hello{}, errors.New("the answer to hello is none of MessagePack-RPC")
	}
	if refusal, ok := answer[2].([]any); ok && len(refusal) == 2 {
		return hello{}, &refusedError{name: fmt.Sprint(refusal[0]), message: fmt.Sprint(refusal[1])}
	}
	result, ok := answer[3].(map[string]any)
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
