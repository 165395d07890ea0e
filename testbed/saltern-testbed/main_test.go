package main

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"regexp"
	"strings"
	"testing"

	"saltern/configs"
	"saltern/testbed"
)

// A store is there until the end, and nothing is left of it.
func TestStoreUntilTheEnd(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts Redis")
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out, in := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := run(ctx, []string{"redis"}, in, io.Discard)
		_ = in.Close()
		done <- err
	}()
	text := readUntil(t, out, "Ctrl-C")
	found := regexp.MustCompile(`(?s)redis … (\S+) .*Everything is in (\S+);`).FindStringSubmatch(text)
	if found == nil {
		t.Fatalf("no address or folder in %q", text)
	}
	conn, err := net.Dial("tcp", found[1])
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	cancel()
	_, _ = io.Copy(io.Discard, out)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if conn, err := net.Dial("tcp", found[1]); err == nil {
		_ = conn.Close()
		t.Error("Redis still answers")
	}
	if _, err := os.Stat(found[2]); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("left behind: %v", err)
	}
}

// The configurations are ones that saltern takes, and no two are in each other's way.
func TestConfigurations(t *testing.T) {
	for mode, redis := range map[string][]string{
		"": nil, "standalone": {"127.0.0.1:21001"}, "cluster": {"127.0.0.1:21001", "127.0.0.1:21002"}, "sentinel": {"127.0.0.1:21003"},
	} {
		c := config{mode: mode, redis: redis, cassandra: []string{"127.0.0.1:21000"}}
		files, err := c.write(&testbed.Bed{Dir: t.TempDir()}, 2)
		if err != nil || len(files) != 2 {
			t.Fatalf("%v, %v", files, err)
		}
		seen := map[string]bool{}
		for i, file := range files {
			got, err := configs.Load(file)
			if err != nil {
				t.Fatal(err)
			}
			got.Resolve(configs.ProcessEnv())
			if err := got.Validate(); err != nil {
				t.Error(err)
			}
			if got.Node != i || got.Cassandra.Hosts[0] != c.cassandra[0] || len(got.Redis.Addresses) != len(c.redis) {
				t.Errorf("%s: %+v", mode, got)
			}
			for _, own := range []string{got.DataDir, got.Listen[0], got.HTTP, got.Master} {
				if seen[own] {
					t.Errorf("%s is in both", own)
				}
				seen[own] = true
			}
		}
	}
}

func readUntil(t *testing.T, r io.Reader, word string) string {
	t.Helper()
	var text strings.Builder
	buf := make([]byte, 4096)
	for !strings.Contains(text.String(), word) {
		n, err := r.Read(buf)
		text.Write(buf[:n])
		if err != nil {
			t.Fatalf("%v after %q", err, text.String())
		}
	}
	return text.String()
}

func TestWhatCannotBeStarted(t *testing.T) {
	for args, want := range map[string]string{
		"":                    "name the stores",
		"--masters 0 redis":   "at least one master",
		"postgres":            `no store "postgres"`,
		"redis redis-cluster": "there is a Redis already",
		"--config x":          "not defined",
	} {
		if testing.Short() {
			continue
		}
		if err := run(t.Context(), strings.Fields(args), io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("saltern-testbed %s: %v; want %q", args, err, want)
		}
	}
}
