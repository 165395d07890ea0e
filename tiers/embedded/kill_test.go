package embedded_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"saltern/tiers/embedded"
)

// The variables that make a run of this test the process that is killed.
const (
	killedDir  = "SALTERN_TEST_KILLED_DIR"
	killedFrom = "SALTERN_TEST_KILLED_FROM"
)

// A process that writes from 16 goroutines is killed (SIGKILL) again and again, 50 times with
// SALTERN_LONG=1. All that it acknowledged is there when the store is opened again.
func TestKilledProcessLosesNothing(t *testing.T) {
	if dir := os.Getenv(killedDir); dir != "" {
		writeUntilKilled(dir)
	}
	kills, acks, long := 4, 500, os.Getenv("SALTERN_LONG") == "1"
	if long {
		kills, acks = 50, 5000
	}
	dir := t.TempDir()
	var acknowledged []int
	for kill := range kills {
		acknowledged = append(acknowledged, killAfter(t, dir, kill*1_000_000, acks)...)
		began := time.Now()
		s := open(t, embedded.Options{Dir: dir})
		if took := time.Since(began); long && took > 2*time.Second {
			t.Errorf("after kill %d: Open took %v; want 2 s at most", kill, took)
		}
		for _, i := range acknowledged {
			if _, err := s.Head(t.Context(), jidAt(start, i)); err != nil {
				t.Fatalf("after kill %d: an acknowledged write: %v", kill, err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// killAfter starts a process that writes jobs with numbers from on, kills it when it has
// acknowledged enough, and gives the numbers of those that it did.
func killAfter(t *testing.T, dir string, from, enough int) (acknowledged []int) {
	t.Helper()
	c := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	c.Env = append(os.Environ(), killedDir+"="+dir, killedFrom+"="+strconv.Itoa(from))
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		i, err := strconv.Atoi(lines.Text())
		if err != nil {
			t.Errorf("the process says %q", lines.Text())
			break
		}
		// What it wrote to the pipe before it died is acknowledged too.
		if acknowledged = append(acknowledged, i); len(acknowledged) == enough {
			if err := c.Process.Kill(); err != nil {
				t.Error(err)
			}
		}
	}
	var exit *exec.ExitError
	if err := c.Wait(); !errors.As(err, &exit) || exit.Exited() {
		t.Fatalf("the process ended with %v; want it killed", err)
	}
	return acknowledged
}

// writeUntilKilled writes jobs and prints the number of each that is acknowledged.
func writeUntilKilled(dir string) {
	s, err := embedded.Open(embedded.Options{Dir: dir})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	from, _ := strconv.Atoi(os.Getenv(killedFrom))
	const writers = 16
	acknowledged := make(chan int)
	for w := range writers {
		go func() {
			for i := from + w; ; i += writers {
				if _, err := s.Merge(context.Background(), smallJob(i)); err != nil {
					fmt.Println(err)
					os.Exit(1)
				}
				acknowledged <- i
			}
		}()
	}
	for i := range acknowledged {
		fmt.Println(i)
	}
}
