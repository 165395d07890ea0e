package testbed

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestNothingIsLeftAfterKill has a process of its own killed, which started a bed, and looks for what is left.
func TestNothingIsLeftAfterKill(t *testing.T) {
	if os.Getenv("TESTBED_VICTIM") != "" {
		victim()
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestNothingIsLeftAfterKill$")
	cmd.Env = append(os.Environ(), "TESTBED_VICTIM=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(line)
	dir := fields[0]
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	deadline := time.Now().Add(20 * time.Second)
	for {
		left := stillThere(dir, fields[1:])
		if left == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(left)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func stillThere(dir string, pids []string) string {
	if _, err := os.Stat(dir); err == nil {
		return dir + " is still there"
	}
	for _, pid := range pids {
		if n, err := strconv.Atoi(pid); err != nil || syscall.Kill(n, 0) == nil {
			return "process " + pid + " still runs"
		}
	}
	return ""
}

// victim starts a bed with a process that ignores SIGTERM and one that has left its group, as a job of a minion
// does, says where they are and waits for its death.
func victim() {
	bed, err := New("victim")
	if err != nil {
		panic(err)
	}
	p, err := startProcess(bed, "stubborn", nil, "/bin/sh", "-c", `trap '' TERM
		setsid /bin/sh -c 'echo $$ >"$0/stray"; while :; do sleep 0.1; done' "$0/" &
		while :; do sleep 0.1; done`, bed.Dir)
	if err != nil {
		panic(err)
	}
	var stray []byte
	for len(stray) == 0 {
		stray, _ = os.ReadFile(bed.Dir + "/stray") // not yet written
		time.Sleep(time.Millisecond)
	}
	fmt.Println(bed.Dir, p.PID(), strings.TrimSpace(string(stray)))
	time.Sleep(time.Hour)
}
