package redis_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"saltern/job"
	"saltern/tiers"
	"saltern/tiers/redis"
)

// TestBadNetwork is R3: answers come in slices of a few bytes, late, and connections break in the middle of one.
// No answer is taken for that of another question.
func TestBadNetwork(t *testing.T) {
	t.Parallel()
	o := defaults(redis.Options{})
	good := open(t, o)
	network := newBadNetwork(t, shared.Address())
	o.Addrs, o.PoolSize = []string{network.address}, 4
	bad := open(t, o)

	const jobs, callers, calls = 20, 8, 60
	name := func(i int) job.JID { return job.JID(fmt.Sprintf("%s_%d", jid, i)) }
	for i := range jobs {
		load := publish(name(i), i+1)
		load.Payload = []byte(fmt.Sprintf("%0300d", i))
		fill(t, good, tiers.Snapshot{
			Head: job.Head{JID: name(i), Load: &load}, Returns: []job.Return{ret(name(i), "a", i+1)}, HasReturns: true,
		})
	}
	var right, failed atomic.Int64
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range calls {
				i := rand.IntN(jobs)
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+rand.IntN(20))*time.Millisecond)
				h, err := bad.Head(ctx, name(i))
				var page tiers.ReturnPage
				if err == nil {
					page, err = bad.Returns(ctx, name(i), tiers.ReturnQuery{})
				}
				cancel()
				if err != nil {
					failed.Add(1)
					continue
				}
				right.Add(1)
				if h.JID != name(i) || h.Load.Version != version(i+1) || len(page.Returns) != 1 || page.Returns[0].Version != version(i+1) {
					t.Errorf("asked for %s and got %+v and %+v", name(i), h, page)
				}
			}
		})
	}
	wg.Wait()
	if right.Load() == 0 || failed.Load() == 0 {
		t.Errorf("%d calls went well and %d failed: the test wants both", right.Load(), failed.Load())
	}
	network.mend()
	eventually(t, "the tier works once the network does", func() bool {
		_, err := bad.Head(t.Context(), name(0))
		return err == nil
	})
	if n := bad.Stats().Corrupt; n != 0 {
		t.Errorf("%d values were taken for corrupt", n)
	}
}

// badNetwork forwards connections, badly until it is mended.
type badNetwork struct {
	address string
	good    atomic.Bool
}

func newBadNetwork(t *testing.T, to string) *badNetwork {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	n := &badNetwork{address: listener.Addr().String()}
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", to)
			if err != nil {
				_ = from.Close()
				continue
			}
			go func() {
				_, _ = io.Copy(server, from)
				_ = server.Close()
			}()
			go n.forward(from, server)
		}
	}()
	return n
}

func (n *badNetwork) mend() { n.good.Store(true) }

// forward sends what comes in slices, some of them late, and hangs up now and then.
func (n *badNetwork) forward(to io.WriteCloser, from io.ReadCloser) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 7)
	for {
		size := len(buffer)
		if !n.good.Load() {
			size = 1 + rand.IntN(len(buffer))
			switch rand.IntN(3000) {
			case 0:
				return
			case 1, 2, 3:
				time.Sleep(time.Duration(rand.IntN(30)) * time.Millisecond)
			}
		}
		read, err := from.Read(buffer[:size])
		if err != nil {
			return
		}
		if _, err := to.Write(buffer[:read]); err != nil {
			return
		}
	}
}
