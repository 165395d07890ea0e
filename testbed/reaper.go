package testbed

import (
	"fmt"
	"io"
	"os/exec"
	"syscall"
)

// reapScript ends what is left of a bed once its input ends, which happens at the latest with the death of our
// process. The first line is the bed's folder; of the others, "+ N" names a process group that runs and "- N" one
// that has ended. Processes that left their group are known by the folder on their command line.
const reapScript = `
read -r dir
groups=
while read -r sign group; do
	case $sign in
	+) groups="$groups $group " ;;
	-) groups=$(printf '%s' "$groups" | sed "s/ $group / /") ;;
	esac
done
strays() {
	for p in /proc/[0-9]*; do
		{ tr '\0' ' ' <"$p/cmdline"; } 2>/dev/null | grep -qF "$dir/" && echo "${p#/proc/}"
	done
}
for group in $groups; do kill -s CONT -- "-$group"; kill -s TERM -- "-$group"; done 2>/dev/null
tries=0
while [ $tries -lt 50 ]; do
	alive=
	for group in $groups; do kill -s 0 -- "-$group" && alive=yes; done 2>/dev/null
	[ -n "$alive" ] || break
	tries=$((tries + 1))
	sleep 0.1
done
for group in $groups; do kill -s KILL -- "-$group"; done 2>/dev/null
for pid in $(strays); do kill -s KILL "$pid"; done 2>/dev/null
rm -rf "$dir" || { sleep 0.2; rm -rf "$dir"; }
`

// reaper is the shell that ends what is left of a bed.
type reaper struct {
	cmd   *exec.Cmd
	input io.WriteCloser
}

func startReaper(dir string) (*reaper, error) {
	cmd := exec.Command("/bin/sh", "-c", reapScript)
	// A session of its own: Ctrl-C in a terminal must not end it before its work.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	input, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("starting the reaper: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the reaper: %w", err)
	}
	if _, err := fmt.Fprintln(input, dir); err != nil {
		return nil, fmt.Errorf("starting the reaper: %w", err)
	}
	return &reaper{cmd: cmd, input: input}, nil
}

// began and ended are told of every process group. A reaper that is gone cannot be helped.
func (r *reaper) began(group int) { _, _ = fmt.Fprintf(r.input, "+ %d\n", group) }
func (r *reaper) ended(group int) { _, _ = fmt.Fprintf(r.input, "- %d\n", group) }

func (r *reaper) finish() error {
	_ = r.input.Close()
	if err := r.cmd.Wait(); err != nil {
		return fmt.Errorf("clearing up the testbed: %w", err)
	}
	return nil
}
