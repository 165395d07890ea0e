package testbed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Process is a child that runs in the foreground, in a process group of its own.
type Process struct {
	// Log is the file with its standard output and error.
	Log string

	name   string
	group  int
	done   chan struct{} // closed when the child has been waited for
	err    error         // what Wait gave; read after done
	reaper *reaper
}

// startProcess starts a command with a log file in the bed's folder. env is added to the environment.
func startProcess(b *Bed, name string, env []string, argv ...string) (*Process, error) {
	log := filepath.Join(b.Dir, "logs", name+".log")
	if err := os.MkdirAll(filepath.Dir(log), 0o755); err != nil {
		return nil, fmt.Errorf("making the folder of logs: %w", err)
	}
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening the log of %s: %w", name, err)
	}
	defer out.Close()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = b.Dir
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	p := &Process{Log: log, name: name, group: cmd.Process.Pid, done: make(chan struct{}), reaper: b.reaper}
	p.reaper.began(p.group)
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// PID is the id of the process, and of its group.
func (p *Process) PID() int { return p.group }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Signal sends a signal to the whole group.
func (p *Process) Signal(s syscall.Signal) error {
	if err := syscall.Kill(-p.group, s); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("sending %v to %s: %w", s, p.name, err)
	}
	return nil
}

// hang stops the process with SIGSTOP and returns when all its threads stand still: on a busy machine that takes a
// while, in which it still answers.
func (p *Process) hang() error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	deadline := time.Now().Add(10 * time.Second)
	for !p.stopped() {
		if time.Now().After(deadline) {
			return fmt.Errorf("%s does not stop", p.name)
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}

// stopped says whether every thread of the process has the state T of Linux.
func (p *Process) stopped() bool {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.group))
	if err != nil || len(tasks) == 0 {
		return true // there is no such file system
	}
	for _, task := range tasks {
		text, err := os.ReadFile(task)
		// The state follows the name, which is in brackets and may have any character.
		end := strings.LastIndex(string(text), ") ")
		if err == nil && end >= 0 && !strings.HasPrefix(string(text[end+2:]), "T") {
			return false
		}
	}
	return true
}

// Kill ends the whole group with SIGKILL and waits for it.
func (p *Process) Kill() error {
	err := p.Signal(syscall.SIGKILL)
	<-p.done
	return errors.Join(err, p.gone(time.Second))
}

// Terminate asks the process to end with SIGTERM and waits for its whole group. What has not ended after patience
// is killed, and is an error.
func (p *Process) Terminate(patience time.Duration) error {
	// Only the leader: it ends its children in its own order.
	if err := syscall.Kill(p.group, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("ending %s: %w", p.name, err)
	}
	select {
	case <-p.done:
	case <-time.After(patience):
		return errors.Join(fmt.Errorf("%s did not end within %v of SIGTERM and was killed; its log ends with:\n%s",
			p.name, patience, Tail(p.Log, 20)), p.Kill())
	}
	return p.gone(patience)
}

// gone waits for the rest of the group after its leader has ended, and kills what stays.
func (p *Process) gone(patience time.Duration) error {
	defer p.reaper.ended(p.group)
	deadline := time.Now().Add(patience)
	for syscall.Kill(-p.group, 0) == nil {
		if time.Now().After(deadline) {
			return p.Signal(syscall.SIGKILL)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return nil
}

// await asks ready every interval until it gives nil. It ends with the error of ready when ctx does, and at once
// when the process has ended.
func (p *Process) await(ctx context.Context, interval time.Duration, ready func(context.Context) error) error {
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("%s ended (%v); its log ends with:\n%s", p.name, p.err, Tail(p.Log, 20))
		case <-ctx.Done():
			return fmt.Errorf("%s was not ready in time: %w; its log ends with:\n%s", p.name, err, Tail(p.Log, 20))
		case <-time.After(interval):
		}
	}
}

// Tail is the end of a file, some lines of it, for messages.
func Tail(path string, lines int) string {
	f, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	const most = 64 << 10
	if info, err := f.Stat(); err == nil && info.Size() > most {
		_, _ = f.Seek(-most, io.SeekEnd) // of a file whose size is known
	}
	data, err := io.ReadAll(f)
	if err != nil {
		return err.Error()
	}
	end := len(data)
	for i := end - 1; i >= 0 && lines >= 0; i-- {
		if data[i] == '\n' && i != len(data)-1 {
			if lines--; lines == 0 {
				return string(data[i+1 : end])
			}
		}
	}
	return string(data)
}
