package cli

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"testing"

	"saltern/configs"
)

// openFull opens a daemon with every tier there is; the shared ones are away.
func openFull(t *testing.T) *daemon {
	t.Helper()
	dir, err := os.MkdirTemp("", "sc") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	c := configs.Default()
	c.DataDir, c.Listen, c.HTTP = dir, []string{"unix:" + dir + "/s"}, "127.0.0.1:0"
	c.Cassandra.Hosts, c.Redis.Addresses = []string{"127.0.0.1:1"}, []string{"127.0.0.1:1"}
	d, err := open(c, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.stop(); err != nil {
			t.Error(err)
		}
		_ = os.RemoveAll(dir)
	})
	return d
}

// TestMetricsPageListsWhatThereIs: docs/metrics.md has each metric with its kind, labels and meaning,
// and no other.
func TestMetricsPageListsWhatThereIs(t *testing.T) {
	var want strings.Builder
	for _, m := range openFull(t).telemetry.Metrics.All() {
		fmt.Fprintf(&want, "| `%s` | %s | %s | %s |\n", m.Name, m.Kind, strings.Join(m.Labels, ", "), m.Help)
	}
	page, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for line := range strings.Lines(string(page)) {
		if strings.HasPrefix(line, "| `saltern_") {
			got.WriteString(line)
		}
	}
	if got.String() != want.String() {
		t.Errorf("docs/metrics.md lists\n%s\nand there is\n%s", got.String(), want.String())
	}
}

// TestMetricsAreServed: what was scraped has the samples of a call, under both forms of the answer.
func TestMetricsAreServed(t *testing.T) {
	d := openFull(t)
	for _, path := range []string{"/v1/jobs/20270105120000000000", "/metrics"} {
		answer, err := http.Get("http://" + d.httpAddr + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		if path != "/metrics" {
			continue
		}
		for _, sample := range []string{
			`saltern_calls_total{api="http",error="unavailable",method="/v1/jobs/{jid}"} 1`,
			`saltern_tier_answers_total{answer="miss",op="returns",tier="memory"} 1`,
			`saltern_breaker_state{calls="read",state="closed",tier="redis"} `,
			"saltern_journal_entries 0", "saltern_cassandra_up 0", "saltern_memory_bytes 0", "go_goroutines ",
		} {
			if !strings.Contains(string(body), "\n"+sample) {
				t.Errorf("%s is not in the answer:\n%s", sample, body)
			}
		}
	}
}
