package testbed

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// FreePorts gives TCP ports of loopback between 20000 and 32000 that nobody listens on: above Salt's own and below
// those that Linux gives to outgoing connections. Another process may take one before it is used; the caller that
// finds it taken asks again.
func FreePorts(count int) ([]int, error) {
	ports := make([]int, 0, count)
	for range 1000 {
		port := 20000 + rand.IntN(12000)
		listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue
		}
		// Held until all are found, so that none is given twice.
		defer listener.Close()
		if ports = append(ports, port); len(ports) == count {
			return ports, nil
		}
	}
	return nil, fmt.Errorf("no %d free ports of 127.0.0.1 between 20000 and 32000", count)
}
