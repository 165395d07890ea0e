package configs_test

import (
	"testing"
	"time"

	"saltern/configs"
)

func TestSize(t *testing.T) {
	for text, want := range map[string]configs.Size{
		"0": 0, "1B": 1, "512KiB": 512 << 10, "64MiB": 64 << 20, "64 MiB": 64 << 20, "2GiB": 2 << 30, "8388607TiB": 8388607 << 40,
	} {
		var s configs.Size
		if err := s.UnmarshalText([]byte(text)); err != nil || s != want {
			t.Errorf("size %q = %d, %v; want %d", text, s, err, want)
		}
		back := s
		if err := back.UnmarshalText([]byte(s.String())); err != nil || back != s {
			t.Errorf("size %q as text is %q, which is read as %d, %v", text, s, back, err)
		}
	}
	for _, text := range []string{"", "64", "-1MiB", "1.5GiB", "64mb", "MiB", "8388608TiB", "99999999999999999999B", "1MiBx"} {
		var s configs.Size
		if err := s.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("size %q was taken as %d", text, s)
		}
	}
}

func TestDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"0": 0, "50ms": 50 * time.Millisecond, "10s": 10 * time.Second, "1h30m": 90 * time.Minute, "168h": 168 * time.Hour,
		"7d": 168 * time.Hour, "1d12h": 36 * time.Hour, "1.5h": 90 * time.Minute, "10m": 10 * time.Minute, "1m1s": 61 * time.Second,
	} {
		var d configs.Duration
		if err := d.UnmarshalText([]byte(text)); err != nil || d.Std() != want {
			t.Errorf("duration %q = %v, %v; want %v", text, d, err, want)
		}
		back := d
		if err := back.UnmarshalText([]byte(d.String())); err != nil || back != d {
			t.Errorf("duration %q as text is %q, which is read as %v, %v", text, d, back, err)
		}
	}
	for _, text := range []string{"", "10", "-1s", "1.5d", "-1d", "d", "7days", "+1s", "200000d", "106751d24h", "1d-1h", "1h1d"} {
		var d configs.Duration
		if err := d.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("duration %q was taken as %v", text, d)
		}
	}
}
