package memory_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"saltern/job"
	"saltern/tiers"
	"saltern/tiers/memory"
)

// S91: what is let go leaves nothing behind, however long it would have lived. New jobs of 200 bytes that would live for an
// hour, as fast as they can be filled in: the memory of the process stays within three times the bound, and does not
// grow in the second half.
func TestWhatIsLetGoLeavesNothing(t *testing.T) {
	const maxBytes, keys, parts = 100 << 20, 12_000_000, 12
	if os.Getenv("SALTERN_LONG") == "" {
		t.Skip("takes a minute: SALTERN_LONG=1")
	}
	c := open(t, memory.Options{MaxBytes: maxBytes})
	payload := make([]byte, 200)
	var halfway, end int64
	start := time.Now()
	for i := range keys {
		load := publish(jidAt(i))
		load.Payload = payload
		err := c.Fill(context.Background(), tiers.Snapshot{Head: job.Head{JID: load.JID, Load: &load}, TTL: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		if n := i + 1; n%(keys/parts) == 0 {
			end = resident(t)
			t.Logf("%8d jobs, %.0f a second: %d MiB resident", n, float64(n)/time.Since(start).Seconds(), end>>20)
			if n <= keys/2 {
				halfway = max(halfway, end)
			}
		}
	}
	if end > 3*maxBytes {
		t.Errorf("%d bytes are resident; want at most three times the bound of %d", end, maxBytes)
	}
	if end > halfway*11/10 {
		t.Errorf("%d bytes are resident at the end, %d at most in the first half: it grows", end, halfway)
	}
}

// resident is the memory of this process in bytes.
func resident(t *testing.T) int64 {
	t.Helper()
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	var size, pages int64
	if _, err := fmt.Sscan(string(text), &size, &pages); err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}
