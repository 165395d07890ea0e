package faulty_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"saltern/job"
	"saltern/tiers"
	"saltern/tiers/embedded"
	"saltern/tiers/faulty"
	"saltern/tiers/memory"
	"saltern/tiers/tiertest"
)

// Without a fault nothing is changed.
func TestConformance(t *testing.T) {
	t.Run("memory", func(t *testing.T) {
		tiertest.Run(t, func(t *testing.T) tiers.Tier {
			return faulty.Wrap(newMemory(t, 256<<20))
		})
	})
	t.Run("embedded", func(t *testing.T) {
		tiertest.Run(t, func(t *testing.T) tiers.Tier {
			s, err := embedded.Open(embedded.Options{Dir: t.TempDir()})
			if err != nil {
				t.Fatal(err)
			}
			return faulty.WrapStore(s)
		})
	})
}

func newMemory(t *testing.T, maxBytes int64) *memory.Cache {
	t.Helper()
	c, err := memory.New(memory.Options{MaxBytes: maxBytes})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const jid = job.JID("20260801120000000000")

// open gives a faulty cache that holds a job without facts.
func open(t *testing.T) *faulty.Tier {
	t.Helper()
	f := faulty.Wrap(newMemory(t, 1<<20))
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := f.Fill(t.Context(), tiers.Snapshot{Head: job.Head{JID: jid}, HasReturns: true}); err != nil {
		t.Fatal(err)
	}
	return f
}

// stored says whether the job has a return.
func stored(t *testing.T, f *faulty.Tier) bool {
	t.Helper()
	page, err := f.Returns(t.Context(), jid, tiers.ReturnQuery{})
	if err != nil {
		t.Fatal(err)
	}
	return len(page.Returns) > 0
}

var fact = []job.Fact{job.Return{JID: jid, Minion: "a", Version: 1}}

func TestFailures(t *testing.T) {
	failure := errors.New("connection reset")
	for _, c := range []struct {
		name   string
		fault  faulty.Fault
		err    error
		stored bool
	}{
		{"none", faulty.Fault{}, nil, true},
		{"refused", faulty.Fault{Err: failure}, failure, false},
		{"outcome unknown", faulty.Fault{Err: failure, After: true}, failure, true},
		{"lost", faulty.Fault{Lose: true}, nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := open(t)
			f.Set(c.fault, faulty.Merge)
			outcomes, err := f.Merge(t.Context(), fact)
			if !errors.Is(err, c.err) {
				t.Errorf("Merge = %v; want %v", err, c.err)
			}
			if err == nil && len(outcomes) != 1 {
				t.Errorf("%d outcomes; want 1", len(outcomes))
			}
			if got := stored(t, f); got != c.stored {
				t.Errorf("stored = %v; want %v", got, c.stored)
			}
		})
	}
}

func TestFaultIsByMethodAndCount(t *testing.T) {
	f, failure := open(t), errors.New("connection reset")
	f.Set(faulty.Fault{Err: failure, Times: 2}, faulty.Head, faulty.Evict)
	for i := range 4 {
		_, err := f.Head(t.Context(), jid)
		if want := i < 2; (err != nil) != want {
			t.Errorf("call %d: %v; want failure: %v", i, err, want)
		}
	}
	if _, err := f.Returns(t.Context(), jid, tiers.ReturnQuery{}); err != nil {
		t.Errorf("Returns = %v; it has no fault", err)
	}
	if n := f.Calls(faulty.Head); n != 4 {
		t.Errorf("Calls(Head) = %d; want 4", n)
	}
	f.Clear()
	if err := f.Evict(t.Context(), jid); err != nil {
		t.Errorf("Evict = %v after all faults were switched off", err)
	}
}

func TestLatency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := open(t)
		for _, c := range []struct {
			name  string
			deaf  bool
			err   error
			after time.Duration
		}{
			{"context looked at", false, context.DeadlineExceeded, time.Second},
			{"context not looked at", true, nil, time.Minute},
		} {
			f.Set(faulty.Fault{Latency: time.Minute, Deaf: c.deaf}, faulty.Head)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			start := time.Now()
			_, err := f.Head(ctx, jid)
			cancel()
			if took := time.Since(start); !errors.Is(err, c.err) || took != c.after {
				t.Errorf("%s: Head = %v after %v; want %v after %v", c.name, err, took, c.err, c.after)
			}
		}
	})
}

func TestHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := open(t)
		f.Set(faulty.Fault{Hang: true, Deaf: true}, faulty.Merge)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := f.Merge(ctx, fact)
			done <- err
		}()
		cancel()
		synctest.Wait()
		if n := f.Running(faulty.Merge); n != 1 {
			t.Fatalf("Running(Merge) = %d; want 1, as it is deaf to its context", n)
		}
		f.Clear(faulty.Merge)
		if err := <-done; err != nil || !stored(t, f) {
			t.Errorf("Merge = %v after it was let go; want it done", err)
		}

		f.Set(faulty.Fault{Hang: true}, faulty.Merge)
		if _, err := f.Merge(ctx, fact); !errors.Is(err, context.Canceled) {
			t.Errorf("Merge = %v; want %v", err, context.Canceled)
		}
	})
}
