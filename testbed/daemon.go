package testbed

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// DaemonOptions says how saltern serve is started.
type DaemonOptions struct {
	// Name tells several daemons of one bed apart; "saltern" when empty.
	Name string
	// Binary is the path of saltern.
	Binary string
	// Args are added to `saltern serve --data-dir DIR --listen unix:SOCKET --http ADDRESS`.
	Args []string
	// Env is added to the environment.
	Env []string
}

// Daemon is a saltern serve with its data in the bed. It is a Service.
type Daemon struct {
	// Socket is the path of the Unix socket, HTTP the address of the people's side (host:port), Data the folder of
	// the embedded store.
	Socket, HTTP, Data string

	bed     *Bed
	options DaemonOptions
	process *Process
}

// NewDaemon describes a daemon; Bed.Start starts it.
func NewDaemon(b *Bed, o DaemonOptions) (*Daemon, error) {
	if o.Name == "" {
		o.Name = "saltern"
	}
	ports, err := FreePorts(1)
	if err != nil {
		return nil, err
	}
	return &Daemon{
		Socket:  filepath.Join(b.Dir, o.Name+".sock"),
		HTTP:    net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[0])),
		Data:    filepath.Join(b.Dir, o.Name+".data"),
		bed:     b,
		options: o,
	}, nil
}

// Name implements Service.
func (d *Daemon) Name() string { return d.options.Name }

// Address is what Salt's option saltern.address has to be.
func (d *Daemon) Address() string { return "unix:" + d.Socket }

// Log is the path of the daemon's log.
func (d *Daemon) Log() string { return filepath.Join(d.bed.Dir, "logs", d.options.Name+".log") }

// PID is the daemon's process id, of the last start.
func (d *Daemon) PID() int { return d.process.PID() }

// Start implements Service: it returns when /readyz says so. A stopped or killed daemon can be started again.
func (d *Daemon) Start(ctx context.Context) error {
	argv := append([]string{d.options.Binary, "serve", "--data-dir", d.Data, "--listen", d.Address(), "--http", d.HTTP},
		d.options.Args...)
	p, err := startProcess(d.bed, d.options.Name, d.options.Env, argv...)
	if err != nil {
		return err
	}
	d.process = p
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return p.await(ctx, 5*time.Millisecond, d.ready)
}

func (d *Daemon) ready(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+d.HTTP+"/readyz", nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("/readyz answers %s", answer.Status)
	}
	return nil
}

// Stop implements Service.
func (d *Daemon) Stop() error {
	if d.process == nil {
		return nil
	}
	// A daemon that hangs by our hand could not end.
	_ = d.Continue()
	return d.process.Terminate(15 * time.Second)
}

// Kill ends the daemon with SIGKILL and waits for it.
func (d *Daemon) Kill() error { return d.process.Kill() }

// Hang stops the daemon with SIGSTOP: connections are still accepted by the system, and nothing answers.
func (d *Daemon) Hang() error { return d.process.hang() }

// Continue ends Hang.
func (d *Daemon) Continue() error { return d.process.Signal(syscall.SIGCONT) }
