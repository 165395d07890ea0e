package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tinylib/msgp/msgp"

	"saltern/tiers"
)

// loadHeader is the header of a published load.
func loadHeader(jid string) pairs {
	return pairs{
		{"jid", jid}, {"shape", "publish"}, {"fun", "test.ping"}, {"tgt", "*"}, {"tgt_type", "glob"}, {"user", "root"},
		{"master", "m1"}, {"keep", 3600}, {"a key of a later version", 1},
	}
}

func returnHeader(jid, id string) pairs {
	return pairs{{"jid", jid}, {"id", id}, {"fun", "test.ping"}, {"retcode", 0}, {"success", true}, {"failed", false}}
}

func packedMap(p ...[2]any) []byte { return pack(pairs(p)) }

// saveReturn are the parameters of save_return without a load.
func saveReturn(jid, id string, value any) []any {
	return []any{returnHeader(jid, id), pack(value), packedMap([2]any{"id", id}), packedMap([2]any{"_stamp", "s"}), nil}
}

func TestRPCMethods(t *testing.T) {
	shelf := newShelf()
	c := newHub(t, shelf, Limits{}).dial()
	j := "20261201120000000001"
	load := packedMap([2]any{"jid", j}, [2]any{"fun", "test.ping"})

	c.want(`{"protocol":1,"version":"1.2.3","max_payload":67108864,"namespace":"ns","scopes":["read","write"]}`,
		"hello", pairs{{"protocol", 1}, {"returner", "1.2.3"}, {"role", "master"}, {"pid", 7}})
	c.want(`true`, "ping")
	c.want(`"20261201000000000001"`, "prep_jid", false, 3600)
	c.want(`true`, "save_load", loadHeader(j), load, []any{"b", "a"})
	c.want(`true`, "save_minions", j, []any{"c"}, "syndic", nil)
	c.want(`"stored"`, "save_return", saveReturn(j, "a", true)...)
	c.want(`"repeat"`, "save_return", saveReturn(j, "a", true)...)
	c.want(`"differs"`, "save_return", saveReturn(j, "a", false)...)
	c.want(`{"jid":"`+j+`","fun":"test.ping","Minions":["a","b","c"]}`, "get_load", j)
	c.want(`null`, "get_load", "20261201129999999999")
	c.want(`[{"a":{"id":"a","_stamp":"s","return":true}},null]`, "get_jid", j, "")
	c.want(`[{},null]`, "get_jid", "20261201129999999999", "")
	c.want(`{"a":"test.ping"}`, "get_fun", "test.ping")
	c.want(`{}`, "get_fun", "")
	c.want(`["a"]`, "get_minions")
	c.want(`true`, "update_endtime", j, "2026, Dec 01", nil)
	c.want(`"2026, Dec 01"`, "get_endtime", j)
	c.want(`null`, "get_endtime", "20261201129999999999")
	c.want(`[["`+j+`"],null,0]`, "list_jobs", pairs{{"limit", 10}, {"fun", "test.*"}, {"from", 1.5}, {"to", 4e9}})
	c.want(`[[["`+j+`",{"jid":"`+j+`","fun":"test.ping"},["a","b","c"],"2026, Dec 01"]],null,0]`,
		"list_jobs", pairs{{"loads", true}})
	c.want(`true`, "save_events", "m1", []any{[]any{make([]byte, 16), "salt/x", load, false}})
	c.want(`true`, "clean_old_jobs")
	c.want(`null`, "load_reg", "m1")
	c.want(`true`, "save_reg", "m1", []byte{1, 2})
	c.want(`{"$base64":"AQI="}`, "load_reg", "m1")
	if shelf.cleans != 1 || len(shelf.events) != 1 {
		t.Errorf("%d calls of Clean, %d events; want 1, 1", shelf.cleans, len(shelf.events))
	}
}

// A return and its load come in one call; the load goes first.
func TestRPCSaveReturnWithItsLoad(t *testing.T) {
	c := newHub(t, newShelf(), Limits{}).dial()
	params := saveReturn("req-1", "a", "out")
	params[4] = []any{pairs{{"jid", "req-1"}, {"shape", "return"}}, packedMap([2]any{"id", "a"}), nil}
	c.want(`"stored"`, "save_return", params...)
	c.want(`{"id":"a"}`, "get_load", "req-1")
}

func TestRPCPrepJIDWithNoCacheDropsReturns(t *testing.T) {
	c := newHub(t, newShelf(), Limits{}).dial()
	c.want(`"20261201000000000001"`, "prep_jid", true, nil)
	c.want(`"dropped"`, "save_return", saveReturn("20261201000000000001", "a", true)...)
}

// What is wrong with one request does not end the connection, when it came through whole.
func TestRPCRefusesRequestsAndGoesOn(t *testing.T) {
	c := newHub(t, newShelf(), Limits{MaxDepth: 64}).dial()
	nested := append(bytes.Repeat([]byte{0x91}, 100), 0xc0)
	for _, r := range []struct {
		what, name, message string
		method              string
		params              []any
	}{
		{"no such method", "unsupported", `no method "drop_all"`, "drop_all", nil},
		{"a long name", "unsupported", "…", strings.Repeat("x", 5000), nil},
		{"another protocol", "unsupported", "install the returner of its version", "hello", []any{pairs{{"protocol", 2}}}},
		{"a jid that is no text", "invalid", "jid", "get_load", []any{5}},
		{"a header that is no map", "invalid", "load header", "save_load", []any{"x", []byte{0x80}}},
		{"a shape that is none", "invalid", `"odd" is none of publish, load, return`, "save_load", []any{pairs{{"jid", "1"}, {"shape", "odd"}}, []byte{0x80}}},
		{"a load that is no map", "invalid", "a map is needed", "save_load", []any{loadHeader("1"), []byte{0x01}}},
		{"a load cut short", "invalid", "load", "save_load", []any{loadHeader("1"), []byte{0x82, 0x01}}},
		{"two values in a load", "invalid", "load", "save_load", []any{loadHeader("1"), []byte{0x80, 0x80}}},
		{"a load nested too deep", "invalid", "nested deeper", "save_load", []any{loadHeader("1"), append([]byte{0x81, 0xa1, 'k'}, nested...)}},
		{"a return without a return", "invalid", "without a return", "save_return", []any{returnHeader("1", "a")}},
		{"an event id too short", "invalid", "event id", "save_events", []any{"m1", []any{[]any{[]byte{1}, "t", []byte{0xc0}, false}}}},
		{"minions that are no text", "invalid", "minions", "save_minions", []any{"1", []any{1}}},
	} {
		got := c.call(r.method, r.params...)
		if got.name != r.name || !strings.Contains(got.message, r.message) {
			t.Errorf("%s: %q: %q; want %q with %q", r.what, got.name, got.message, r.name, r.message)
		}
		if strings.Contains(got.message, "\n") {
			t.Errorf("%s: the message has several lines: %q", r.what, got.message)
		}
	}
	c.want(`true`, "ping")
}

// What is no request is answered where a msgid could be read, and ends the connection.
func TestRPCClosesTheConnectionOfABadMessage(t *testing.T) {
	h := newHub(t, newShelf(), Limits{MaxPayload: 1 << 20, MaxDepth: 64})
	head := func(id byte) []byte { return []byte{0x94, 0x00, id, 0xa4, 'p', 'i', 'n', 'g'} }
	for _, m := range []struct {
		what   string
		bytes  []byte
		name   string // of the error, empty for none
		id     uint32
		closes bool // the client stops sending
	}{
		{"a notification", pack([]any{2, "ping", []any{}}), "invalid", 0, false},
		{"an answer", pack([]any{1, 7, nil, true}), "invalid", 0, false},
		{"a number", []byte{0x05}, "invalid", 0, false},
		{"an empty array", []byte{0x90}, "invalid", 0, false},
		{"text from a browser", []byte("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"), "invalid", 0, false},
		{"a msgid below zero", pack([]any{0, -1, "ping", []any{}}), "invalid", 0, false},
		{"a method that is a number", pack([]any{0, 9, 5, []any{}}), "invalid", 9, false},
		{"a byte that is no MessagePack", append(head(7), 0x91, 0xc1), "invalid", 7, false},
		{"that byte first", []byte{0xc1}, "", 0, false},
		{"4 GiB announced", append(head(7), 0x91, 0xc6, 0xff, 0xff, 0xff, 0xff), "too-large", 7, false},
		{"nested too deep", append(head(7), bytes.Repeat([]byte{0x91}, 100)...), "invalid", 7, false},
		{"maps nested too deep", append(head(7), bytes.Repeat([]byte{0x81, 0xa1, 'k'}, 100)...), "invalid", 7, false},
		{"4 Gi elements announced, none come", append(head(7), 0xdd, 0xff, 0xff, 0xff, 0xff), "", 0, true},
		{"cut short", head(7)[:5], "", 0, true},
		{"nothing", nil, "", 0, true},
	} {
		t.Run(m.what, func(t *testing.T) {
			t.Parallel() // the server waits for a second for what the client may still be sending
			c := h.dial()
			c.t = t
			c.write(m.bytes)
			if m.closes {
				_ = c.c.(*net.UnixConn).CloseWrite()
			}
			if m.name != "" {
				r, err := c.receive()
				if err != nil || r.name != m.name || r.id != m.id {
					t.Errorf("the answer is %+v, %v; want %q to %d", r, err, m.name, m.id)
				}
			}
			c.closed()
		})
	}
	h.dial().want(`true`, "ping")
}

// A client that sends all before it reads gets its answer, and not a broken pipe.
func TestRPCRefusesAMessageThatIsTooLarge(t *testing.T) {
	h := newHub(t, newShelf(), Limits{MaxPayload: 1 << 20})
	c := h.dial()
	c.send("save_load", loadHeader("1"), make([]byte, 2800<<10), nil)
	r, err := c.receive()
	if err != nil || r.name != "too-large" || r.id != 1 {
		t.Errorf("the answer is %+v, %v; want too-large", r, err)
	}
	_ = c.c.(*net.UnixConn).CloseWrite()
	c.closed()
	h.dial().want(`true`, "ping")
}

func TestRPCTakesTheLargestPayload(t *testing.T) {
	c := newHub(t, newShelf(), Limits{MaxPayload: 2 << 20}).dial()
	largest := pack(make([]byte, 2<<20-5)) // its head has 5 bytes
	params := saveReturn("1", "a", nil)
	params[1] = largest
	c.want(`"stored"`, "save_return", params...)
	r := c.call("get_jid", "1", "")
	if !bytes.Contains(r.result, largest) {
		t.Errorf("get_jid gives %d bytes without the return", len(r.result))
	}
	// A byte more fits into a message, and is refused all the same; the connection goes on.
	params[1] = pack(make([]byte, 2<<20-4))
	if r := c.call("save_return", params...); r.name != "too-large" || !strings.Contains(r.message, "the limit is 2097152") {
		t.Errorf("a payload above the limit: %q: %q", r.name, r.message)
	}
	c.want(`true`, "ping")
}

func TestRPCAnswersInTheOrderOfTheRequests(t *testing.T) {
	c := newHub(t, newShelf(), Limits{}).dial()
	const n = 500
	go func() {
		for i := range uint32(n) {
			if _, err := c.c.Write(frameOf(i, "get_load", "none")); err != nil {
				return
			}
		}
	}()
	for i := range uint32(n) {
		if r, err := c.receive(); err != nil || r.id != i || r.name != "" {
			t.Fatalf("answer %d is %+v, %v", i, r, err)
		}
	}
}

func TestRPCLimitsConnections(t *testing.T) {
	h := newHub(t, newShelf(), Limits{MaxConnections: 2})
	first, second := h.dial(), h.dial()
	first.want(`true`, "ping")
	second.want(`true`, "ping")
	h.dial().closed()
	_ = first.c.Close()
	// The server sees the end of the first soon, but not at once.
	deadline := time.Now().Add(10 * time.Second)
	for {
		c := h.dial()
		if _, err := c.c.Write(frameOf(1, "ping")); err == nil {
			if _, err := c.receive(); err == nil {
				break
			}
		}
		if time.Now().After(deadline) {
			t.Fatal("no connection is accepted after one was closed")
		}
	}
	second.want(`true`, "ping")
}

func TestRPCIsBusyWhenItIs(t *testing.T) {
	shelf := newShelf()
	shelf.gate = make(chan struct{})
	h := newHub(t, shelf, Limits{MaxInFlight: 1})
	writer, other := h.dial(), h.dial()
	writer.send("save_load", loadHeader("1"), []byte{0x80}, nil)
	<-shelf.in
	if r := other.call("ping"); r.name != "busy" {
		t.Errorf("a second request: %+v; want busy", r)
	}
	close(shelf.gate)
	if r, err := writer.receive(); err != nil || r.name != "" {
		t.Errorf("the first request: %+v, %v", r, err)
	}
	other.want(`true`, "ping")
}

func TestRPCNamesTheErrorsOfTheStore(t *testing.T) {
	shelf := newShelf()
	c := newHub(t, shelf, Limits{}).dial()
	for fault, name := range map[error]string{
		tiers.ErrFull: "full", tiers.ErrUnavailable: "unavailable", tiers.ErrTimeout: "unavailable",
		tiers.ErrTooLarge: "too-large", tiers.ErrInvalid: "invalid", context.DeadlineExceeded: "unavailable",
		errors.New("odd"): "unavailable",
	} {
		shelf.fail(fmt.Errorf("write: %w", fault))
		for method, params := range map[string][]any{
			"save_load": {loadHeader("1"), []byte{0x80}, nil}, "save_return": saveReturn("1", "a", true),
			"get_load": {"1"}, "get_jid": {"1", ""}, "get_fun": {"f"}, "get_minions": nil, "list_jobs": nil, "get_endtime": {"1"},
		} {
			if r := c.call(method, params...); r.name != name {
				t.Errorf("%s with %v: %q: %q; want %q", method, fault, r.name, r.message, name)
			}
		}
	}
}

func TestRPCSurvivesAPanic(t *testing.T) {
	shelf := newShelf()
	c := newHub(t, shelf, Limits{}).dial()
	shelf.fail("secret payload")
	if r := c.call("get_load", "1"); r.name != "unavailable" || strings.Contains(r.message, "secret") {
		t.Errorf("a panic is answered with %+v", r)
	}
	shelf.fail(nil)
	c.want(`null`, "get_load", "1")
}

// Accepted writes are finished and answered, those behind them are refused with a reason, and
// nobody new gets in.
func TestRPCShutdown(t *testing.T) {
	shelf := newShelf()
	shelf.gate = make(chan struct{})
	h := newHub(t, shelf, Limits{})
	idle, writer := h.dial(), h.dial()
	idle.want(`true`, "ping")
	// Both in one piece, so that the second is there before the server stops.
	writer.write(append(frameOf(1, "save_load", loadHeader("1"), []byte{0x80}, nil), frameOf(2, "save_load", loadHeader("2"), []byte{0x80}, nil)...))
	<-shelf.in
	down := make(chan error, 1)
	go func() { down <- h.rpc.Shutdown(t.Context()) }()
	idle.closed()
	if c, err := net.Dial("unix", h.path); err == nil {
		_ = c.Close()
		t.Error("a new connection is accepted")
	}
	close(shelf.gate)
	if r, err := writer.receive(); err != nil || r.id != 1 || r.name != "" {
		t.Errorf("the write under way: %+v, %v", r, err)
	}
	if r, err := writer.receive(); err != nil || r.id != 2 || r.name != "unavailable" || !strings.Contains(r.message, "stopping") {
		t.Errorf("the write behind it: %+v, %v; want that saltern is stopping", r, err)
	}
	writer.closed()
	if err := <-down; err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	if len(shelf.heads) != 1 {
		t.Errorf("%d jobs are stored; want the accepted one", len(shelf.heads))
	}
}

func TestRPCShutdownCutsOffAtItsDeadline(t *testing.T) {
	shelf := newShelf()
	shelf.gate = make(chan struct{})
	h := newHub(t, shelf, Limits{})
	c := h.dial()
	c.send("save_load", loadHeader("1"), []byte{0x80}, nil)
	<-shelf.in
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := h.rpc.Shutdown(ctx); err == nil || !strings.Contains(err.Error(), "1 connections were cut off") {
		t.Errorf("Shutdown: %v; want that a connection was cut off", err)
	}
	c.closed()
	close(shelf.gate)
}

// pipes is a listener of connections within the process, for tests with a clock of their own.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	c, open := <-p
	if !open {
		return nil, net.ErrClosed
	}
	return c, nil
}
func (p pipes) Close() error   { close(p); return nil }
func (p pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

func TestRPCClosesConnectionsThatSendNothing(t *testing.T) {
	for name, c := range map[string]struct {
		drip  []byte // sent a byte at a time, each after every
		every time.Duration
		after time.Duration // when it is closed
	}{
		"idle":               {nil, 0, 10 * time.Minute},
		"stuck in a message": {frameOf(1, "ping")[:3], 0, 30 * time.Second},
		"a byte every 20 s":  {frameOf(1, "ping"), 20 * time.Second, 30 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := make(pipes)
				s := NewRPC(RPCOptions{Jobs: newShelf(), Logger: quiet()})
				s.Serve(l)
				client, served := net.Pipe()
				start := time.Now()
				l <- served
				var dripping sync.WaitGroup
				defer dripping.Wait()
				dripping.Go(func() {
					for i := range c.drip {
						if i > 0 {
							time.Sleep(c.every)
						}
						if _, err := client.Write(c.drip[i : i+1]); err != nil {
							return
						}
					}
				})
				if _, err := io.ReadAll(client); err != nil {
					t.Errorf("the connection ends with %v", err)
				}
				if took := time.Since(start); took != c.after {
					t.Errorf("the connection was closed after %v; want %v", took, c.after)
				}
				if err := s.Shutdown(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A client that does not read its answers is cut off; the others are served meanwhile.
func TestRPCCutsOffAClientThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := make(pipes)
		s := NewRPC(RPCOptions{Jobs: newShelf(), Logger: quiet()})
		s.Serve(l)
		client, served := net.Pipe()
		l <- served
		start := time.Now()
		if _, err := client.Write(frameOf(1, "ping")); err != nil {
			t.Fatal(err)
		}
		if _, err := client.Write(frameOf(2, "ping")); err == nil {
			t.Error("a second request is taken while the first answer is not read")
		}
		if took := time.Since(start); took != 30*time.Second {
			t.Errorf("the connection was closed after %v; want 30s", took)
		}
		if err := s.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Large messages wait for each other, so that the memory for them is bounded, and for longer than a
// message may take to come: the wait is not their client's fault.
func TestRPCLargeMessagesWaitTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, shelf := make(pipes), newShelf()
		shelf.gate = make(chan struct{})
		s := NewRPC(RPCOptions{Jobs: shelf, Logger: quiet()})
		s.Serve(l)
		answers := make(chan error, maxLarge+1)
		for i := range maxLarge + 1 {
			client, served := net.Pipe()
			l <- served
			go func() {
				defer client.Close()
				large := packedMap([2]any{"k", make([]byte, 2*largeMessage)})
				if _, err := client.Write(frameOf(1, "save_load", loadHeader(fmt.Sprint(i)), large, nil)); err != nil {
					answers <- err
					return
				}
				_, err := newFrames(client, 1<<20, 8).next()
				answers <- err
			}()
		}
		synctest.Wait()
		time.Sleep(time.Minute)
		if n := len(shelf.in); n != maxLarge {
			t.Errorf("%d large messages are worked on at a time; want %d", n, maxLarge)
		}
		close(shelf.gate)
		for range maxLarge + 1 {
			if err := <-answers; err != nil {
				t.Errorf("a large message is not answered: %v", err)
			}
		}
		if err := s.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// FuzzRPC sends any bytes as a client: whatever comes, the server answers with whole answers, and
// ends when the client does.
func FuzzRPC(f *testing.F) {
	f.Add(frameOf(1, "ping"))
	f.Add(append(frameOf(1, "save_load", loadHeader("1"), []byte{0x80}, []any{"a"}), frameOf(2, "get_load", "1")...))
	f.Add(frameOf(1, "save_return", saveReturn("1", "a", true)...))
	f.Add(frameOf(1, "list_jobs", pairs{{"limit", 1 << 30}, {"not_fun", []any{"x"}}}))
	f.Add(frameOf(1, "save_events", "m", []any{[]any{make([]byte, 16), "t", []byte{0xc0}, false}}))
	f.Add([]byte{0xdd, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		s := NewRPC(RPCOptions{Jobs: newShelf(), Logger: quiet(), Limits: Limits{MaxPayload: 1 << 16, MaxDepth: 32}})
		c := &recording{in: bytes.NewReader(b)}
		s.serveConn(c)
		for out := c.out.Bytes(); len(out) > 0; {
			rest, err := msgp.Skip(out)
			if err != nil {
				t.Fatalf("an answer is cut short: %v", err)
			}
			r, err := readReply(out[:len(out)-len(rest)])
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(r.message, "internal fault") {
				t.Fatalf("a call panicked: %s", r.message)
			}
			out = rest
		}
	})
}

// recording is a connection that sends in, and keeps what it gets.
type recording struct {
	net.Conn // nil: nothing else is called
	in       io.Reader
	out      bytes.Buffer
}

func (r *recording) Read(b []byte) (int, error)       { return r.in.Read(b) }
func (r *recording) Write(b []byte) (int, error)      { return r.out.Write(b) }
func (r *recording) SetReadDeadline(time.Time) error  { return nil }
func (r *recording) SetWriteDeadline(time.Time) error { return nil }
