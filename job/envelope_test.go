package job_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"saltern/job"
)

func noise(n int) []byte {
	r := rand.NewChaCha8([32]byte{})
	b := make([]byte, n)
	_, _ = r.Read(b)
	return b
}

// bodies are around the size from which bodies are compressed, and such that are not smaller then.
func bodies() map[string][]byte {
	return map[string][]byte{
		"empty": {}, "one byte": {0xc3}, "below": bytes.Repeat([]byte("a"), 511),
		"compressed": bytes.Repeat([]byte("salt"), 200), "noise": noise(700),
		"large": bytes.Repeat([]byte(`{"state": true}`), 20_000), "large noise": noise(70_000),
	}
}

func TestEnvelopeRoundTrip(t *testing.T) {
	for name, body := range bodies() {
		kept := bytes.Clone(body)
		sealed := job.Seal(job.MaxVersion, body)
		v, got, err := job.Open(sealed)
		if err != nil || v != job.MaxVersion || !bytes.Equal(got, body) {
			t.Errorf("%s: Open(Seal(body)) gives version %d, %d bytes, %v", name, v, len(got), err)
		}
		if !bytes.Equal(body, kept) {
			t.Errorf("%s: Seal changed the body", name)
		}
		if len(sealed) > len(body)+16 {
			t.Errorf("%s: %d bytes became %d; an envelope adds 16 at most", name, len(body), len(sealed))
		}
	}
}

func TestEnvelopeCompresses(t *testing.T) {
	body := bodies()["large"]
	if sealed := job.Seal(1, body); len(sealed) > len(body)/20 {
		t.Errorf("%d bytes of states became %d", len(body), len(sealed))
	}
}

// TestEnvelopeFindsEveryFlip flips every bit of a byte, and the byte as a whole, for every byte of
// an envelope.
func TestEnvelopeFindsEveryFlip(t *testing.T) {
	for name, body := range bodies() {
		if len(body) > 1000 {
			continue
		}
		sealed := job.Seal(42, body)
		for i := range sealed {
			for _, mask := range []byte{1, 2, 4, 8, 16, 32, 64, 128, 255} {
				sealed[i] ^= mask
				if _, _, err := job.Open(sealed); !errors.Is(err, job.ErrCorrupt) {
					t.Fatalf("%s: byte %d of %d flipped by %#x: %v; want ErrCorrupt", name, i, len(sealed), mask, err)
				}
				sealed[i] ^= mask
			}
		}
	}
}

func TestEnvelopeFindsEveryCut(t *testing.T) {
	for name, body := range bodies() {
		if len(body) > 1000 {
			continue
		}
		sealed := job.Seal(42, body)
		for n := range len(sealed) {
			if _, _, err := job.Open(sealed[:n]); !errors.Is(err, job.ErrCorrupt) {
				t.Fatalf("%s: cut to %d of %d bytes: %v; want ErrCorrupt", name, n, len(sealed), err)
			}
		}
		if _, _, err := job.Open(append(sealed, 0)); !errors.Is(err, job.ErrCorrupt) {
			t.Fatalf("%s: a byte appended: %v; want ErrCorrupt", name, err)
		}
	}
}

// forge makes an envelope with a right checksum around anything.
func forge(format, codec byte, body []byte) []byte {
	b := append([]byte{'S', 'n', format, codec, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0}, body...)
	table := crc32.MakeTable(crc32.Castagnoli)
	binary.BigEndian.PutUint32(b[12:], crc32.Update(crc32.Checksum(b[:12], table), table, b[16:]))
	return b
}

func TestEnvelopeRefusesWhatItDoesNotKnow(t *testing.T) {
	for name, b := range map[string][]byte{
		"newer format": forge(2, 0, nil), "older format": forge(0, 0, nil), "other codec": forge(1, 2, nil),
		"no zstd": forge(1, 1, []byte("no zstd")), "nil": nil, "other magic": []byte("SnappyBodyOf16Byt"),
	} {
		if _, _, err := job.Open(b); !errors.Is(err, job.ErrCorrupt) {
			t.Errorf("%s: %v; want ErrCorrupt", name, err)
		}
	}
	if _, body, err := job.Open(forge(1, 0, []byte("ok"))); err != nil || string(body) != "ok" {
		t.Errorf("a forged envelope of this format: %q, %v; the tests above prove nothing", body, err)
	}
}

// TestEnvelopeBoundsMemory opens small values that claim to be large.
func TestEnvelopeBoundsMemory(t *testing.T) {
	// A zstd frame of one segment with a content size of 8 bytes, and an empty last block.
	claim := func(size uint64) []byte {
		frame := []byte{0x28, 0xb5, 0x2f, 0xfd, 0xe0}
		return append(binary.LittleEndian.AppendUint64(frame, size), 1, 0, 0)
	}
	for _, size := range []uint64{job.MaxBody + 1, 1 << 32, 1 << 62, 1<<64 - 1} {
		got := allocated(func() {
			if _, _, err := job.Open(forge(1, 1, claim(size))); !errors.Is(err, job.ErrCorrupt) {
				t.Errorf("a claim of %d bytes: %v; want ErrCorrupt", size, err)
			}
		})
		if got > 8<<20 {
			t.Errorf("a claim of %d bytes: %d bytes were allocated", size, got)
		}
	}
}

func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func TestEnvelopeIsConcurrent(t *testing.T) {
	body := bodies()["large"]
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 20 {
				v, got, err := job.Open(job.Seal(job.Version(i), body))
				if err != nil || v != job.Version(i) || !bytes.Equal(got, body) {
					t.Errorf("version %d, %d bytes, %v", v, len(got), err)
				}
			}
		})
	}
	wg.Wait()
}

func TestEnvelopeOfAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		body := rapid.SliceOfN(rapid.Byte(), 0, 2000).Draw(t, "body")
		v := job.Version(rapid.Uint64().Draw(t, "version"))
		got, opened, err := job.Open(job.Seal(v, body))
		if err != nil || got != v || !bytes.Equal(opened, body) {
			t.Fatalf("version %d, body %x, %v", got, opened, err)
		}
	})
}

func FuzzOpen(f *testing.F) {
	for _, body := range bodies() {
		if len(body) < 1000 {
			f.Add(job.Seal(7, body))
		}
	}
	f.Add(forge(1, 1, []byte("no zstd")))
	f.Add(forge(2, 0, nil))
	f.Add([]byte("Sn"))
	f.Fuzz(func(t *testing.T, b []byte) {
		v, body, err := job.Open(b)
		if err != nil {
			if !errors.Is(err, job.ErrCorrupt) {
				t.Fatalf("error %v; want ErrCorrupt", err)
			}
			return
		}
		if w, again, err := job.Open(job.Seal(v, body)); err != nil || w != v || !bytes.Equal(again, body) {
			t.Fatalf("what was opened does not seal: %v", err)
		}
	})
}
