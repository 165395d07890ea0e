package testbed

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// redisCommand sends a command to a Redis and gives its answer as text: the elements of an array are lines.
func redisCommand(ctx context.Context, address string, args ...string) (string, error) {
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", address)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(2 * time.Second)); err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	if _, err := io.WriteString(conn, b.String()); err != nil {
		return "", err
	}
	answer, err := readRESP(bufio.NewReader(conn))
	if err != nil {
		return "", fmt.Errorf("%s of %s: %w", args[0], address, err)
	}
	return answer, nil
}

// readRESP reads one answer of protocol 2.
func readRESP(r *bufio.Reader) (string, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimRight(line, "\r\n")
	if line == "" {
		return "", errors.New("empty line in the answer")
	}
	kind, rest := line[0], line[1:]
	switch kind {
	case '+', ':':
		return rest, nil
	case '-':
		return "", errors.New(rest)
	}
	n, err := strconv.Atoi(rest)
	if err != nil || kind != '$' && kind != '*' {
		return "", fmt.Errorf("answer %q is not RESP", line)
	}
	if n < 0 {
		return "", nil
	}
	if kind == '$' {
		data := make([]byte, n+len("\r\n"))
		_, err := io.ReadFull(r, data)
		return string(data[:n]), err
	}
	elements := make([]string, n)
	for i := range elements {
		if elements[i], err = readRESP(r); err != nil {
			return "", err
		}
	}
	return strings.Join(elements, "\n"), nil
}
