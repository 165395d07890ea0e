package testbed

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// Output is what a command line of Salt gave.
type Output struct {
	Stdout, Stderr string
	Code           int
	Took           time.Duration
}

// Run runs salt, salt-run, salt-key or salt-cp with the master's configuration. A code other than 0 is no error;
// that the command could not be run, or was ended by ctx, is.
func (s *Salt) Run(ctx context.Context, program string, args ...string) (*Output, error) {
	return s.RunEnv(ctx, nil, program, args...)
}

// RunEnv is Run with additions to the environment, as KEY=value.
func (s *Salt) RunEnv(ctx context.Context, env []string, program string, args ...string) (*Output, error) {
	return runCommand(ctx, env, s.bin(program), append([]string{"-c", s.MasterConfig}, args...)...)
}

// Call runs salt-call with the configuration of a minion.
func (s *Salt) Call(ctx context.Context, id string, args ...string) (*Output, error) {
	return runCommand(ctx, nil, s.bin("salt-call"), append([]string{"-c", s.MinionConfig(id)}, args...)...)
}

// RunCommand runs any program as Run does.
func RunCommand(ctx context.Context, name string, args ...string) (*Output, error) {
	return runCommand(ctx, nil, name, args...)
}

func runCommand(ctx context.Context, env []string, name string, args ...string) (*Output, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// The whole group: what the command started would keep its output open.
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	start := time.Now()
	err := cmd.Run()
	out := &Output{Stdout: stdout.String(), Stderr: stderr.String(), Took: time.Since(start)}
	var exit *exec.ExitError
	if ctx.Err() == nil && errors.As(err, &exit) {
		out.Code, err = exit.ExitCode(), nil
	}
	if err != nil {
		return out, fmt.Errorf("%s: %w; it had printed %q and on stderr %q", cmd, err, out.Stdout, out.Stderr)
	}
	return out, nil
}

// JSON decodes what was printed with --out=json; numbers are json.Number.
func (o *Output) JSON(into any) error {
	d := json.NewDecoder(bytes.NewBufferString(o.Stdout))
	d.UseNumber()
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("not JSON (%w): exit code %d, stdout %q, stderr %q", err, o.Code, o.Stdout, o.Stderr)
	}
	return nil
}
