package testbed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"text/template"
	"time"
)

// CassandraOptions says how a Cassandra is started. The zero value takes anybody, without TLS.
type CassandraOptions struct {
	// Name tells several Cassandras of one bed apart; "cassandra" when empty.
	Name string
	// Password asks clients for a user and a password: both are "cassandra".
	Password bool
	// TLS lets clients use TLS too, on the same port. Cassandra.CA is then the file to trust.
	TLS bool
	// MaxHeap is the largest heap, as -Xmx takes it; "1g" when empty.
	MaxHeap string
}

// Cassandra is one node with its data in the bed. It is a Service: it takes the same ports and data at
// every start.
type Cassandra struct {
	// CA is the path of the certificate that signed the node's own; empty without TLS.
	CA string

	bed     *Bed
	options CassandraOptions
	dir     string
	port    int
	address string // of a node that was there before us
	process *Process
}

// NewCassandra describes a node; Bed.Start starts it. Where the environment variable SALTERN_CASSANDRA
// names the HOST:PORT of a running one, that one is used as it is and never stopped.
func NewCassandra(b *Bed, o CassandraOptions) (*Cassandra, error) {
	if o.Name == "" {
		o.Name = "cassandra"
	}
	if o.MaxHeap == "" {
		o.MaxHeap = "1g"
	}
	c := &Cassandra{bed: b, options: o, dir: filepath.Join(b.Dir, o.Name), address: os.Getenv("SALTERN_CASSANDRA")}
	if c.address != "" {
		return c, nil
	}
	// CQL, between nodes, JMX.
	ports, err := FreePorts(3)
	if err != nil {
		return nil, err
	}
	c.port = ports[0]
	if o.TLS {
		if c.CA, err = writeCertificates(filepath.Join(c.dir, "conf")); err != nil {
			return nil, fmt.Errorf("certificates of %s: %w", o.Name, err)
		}
	}
	return c, c.configure(ports)
}

// StartCassandra starts a node in a bed of its own. The bed's Close stops it.
func StartCassandra(ctx context.Context, o CassandraOptions) (*Bed, *Cassandra, error) {
	b, err := New("cassandra")
	if err != nil {
		return nil, nil, err
	}
	c, err := NewCassandra(b, o)
	if err == nil {
		err = b.Start(ctx, c)
	}
	if err != nil {
		return nil, nil, errors.Join(err, b.Close())
	}
	return b, c, nil
}

// configure writes the node's files. Its folders are its own, so that nothing of a Cassandra that is
// installed here is read.
func (c *Cassandra) configure(ports []int) error {
	values := map[string]any{
		"Dir": c.dir, "Port": ports[0], "Storage": ports[1], "Log": c.Log(),
		"Password": c.options.Password, "TLS": c.options.TLS,
	}
	for name, text := range map[string]string{"cassandra.yaml": cassandraYAML, "logback.xml": logbackXML} {
		var b strings.Builder
		if err := template.Must(template.New(name).Parse(text)).Execute(&b, values); err != nil {
			return err
		}
		if err := writeFile(filepath.Join(c.dir, "conf", name), b.String()); err != nil {
			return fmt.Errorf("configuration of %s: %w", c.options.Name, err)
		}
	}
	return writeFile(filepath.Join(c.dir, "conf", "jmx-port"), strconv.Itoa(ports[2]))
}

// Name implements Service.
func (c *Cassandra) Name() string { return c.options.Name }

// Address is the HOST:PORT for clients.
func (c *Cassandra) Address() string {
	if c.address != "" {
		return c.address
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(c.port))
}

// External says that the node was there before us (SALTERN_CASSANDRA): it cannot be killed or hung, and
// its options are not ours.
func (c *Cassandra) External() bool { return c.address != "" }

// Log is the path of the node's log.
func (c *Cassandra) Log() string {
	return filepath.Join(c.bed.Dir, "logs", c.options.Name+".system.log")
}

// PID is the node's process id, of the last start; 0 where it was there before us.
func (c *Cassandra) PID() int {
	if c.process == nil {
		return 0
	}
	return c.process.PID()
}

// Start implements Service: it returns when the node answers in CQL. A stopped or killed node can be
// started again.
func (c *Cassandra) Start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 4*time.Minute)
	defer cancel()
	if c.External() {
		return answersCQL(ctx, c.address)
	}
	lib, err := CassandraJars(ctx)
	if err != nil {
		return err
	}
	argv, err := c.command(lib)
	if err != nil {
		return err
	}
	p, err := startProcess(c.bed, c.options.Name, nil, argv...)
	if err != nil {
		return err
	}
	c.process = p
	return p.await(ctx, 100*time.Millisecond, func(ctx context.Context) error {
		return answersCQL(ctx, c.Address())
	})
}

func (c *Cassandra) command(lib string) ([]string, error) {
	conf := filepath.Join(c.dir, "conf")
	jmx, err := os.ReadFile(filepath.Join(conf, "jmx-port"))
	if err != nil {
		return nil, err
	}
	argv := []string{"java", "-Xms256m", "-Xmx" + c.options.MaxHeap, "-XX:+UseSerialGC"}
	for _, p := range cassandraExports {
		argv = append(argv, "--add-exports", p+"=ALL-UNNAMED")
	}
	for _, p := range cassandraOpens {
		argv = append(argv, "--add-opens", p+"=ALL-UNNAMED")
	}
	return append(argv, "-Djdk.attach.allowAttachSelf=true",
		"-Dcassandra.config=file://"+filepath.Join(conf, "cassandra.yaml"),
		"-Dcassandra.storagedir="+filepath.Join(c.dir, "data"),
		"-Dlogback.configurationFile="+filepath.Join(conf, "logback.xml"),
		"-Dcassandra.skip_wait_for_gossip_to_settle=0", "-Dcassandra.ring_delay_ms=100",
		"-Dcassandra.superuser_setup_delay_ms=0", "-Dcassandra.jmx.local.port="+string(jmx),
		"-cp", conf+":"+filepath.Join(lib, "*"), "org.apache.cassandra.service.CassandraDaemon"), nil
}

// answersCQL sends OPTIONS and wants SUPPORTED. Cassandra opens its port for clients last of all.
func answersCQL(ctx context.Context, address string) error {
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(2 * time.Second)); err != nil {
		return err
	}
	const version, options, supported = 4, 5, 6
	// Version, flags, stream (2), opcode, length (4).
	if _, err := conn.Write([]byte{version, 0, 0, 0, options, 0, 0, 0, 0}); err != nil {
		return err
	}
	var header [9]byte
	if _, err := io.ReadFull(conn, header[:]); err != nil {
		return fmt.Errorf("%s accepts and does not answer in CQL: %w", address, err)
	}
	if header[4] != supported {
		return fmt.Errorf("%s answers OPTIONS with opcode %d", address, header[4])
	}
	return nil
}

var errExternal = errors.New("the Cassandra of SALTERN_CASSANDRA is not ours to stop or hang")

// Stop implements Service. A node that was there before us is left alone.
func (c *Cassandra) Stop() error {
	if c.process == nil {
		return nil
	}
	// A node that hangs by our hand could not end.
	_ = c.Continue()
	return c.process.Terminate(30 * time.Second)
}

// Kill ends the node with SIGKILL and waits for it.
func (c *Cassandra) Kill() error {
	if c.process == nil {
		return errExternal
	}
	return c.process.Kill()
}

// Hang stops the node with SIGSTOP: connections are still accepted by the system, and nothing answers.
func (c *Cassandra) Hang() error {
	if c.process == nil {
		return errExternal
	}
	return c.process.hang()
}

// Continue ends Hang.
func (c *Cassandra) Continue() error {
	if c.process == nil {
		return errExternal
	}
	return c.process.Signal(syscall.SIGCONT)
}
