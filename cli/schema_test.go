package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSchema(t *testing.T) {
	with := func(text string) string {
		path := filepath.Join(t.TempDir(), "saltern.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	there := with("namespace: west\ncassandra: {hosts: [127.0.0.1:1], datacenter: dc7, replication-factor: 2, timeout: 50ms}\n")
	for _, c := range []struct {
		name string
		args []string
		code int
		want string // on standard output, or else on standard error
	}{
		{"nothing", nil, ExitUsage, "print, apply or check"},
		{"another command", []string{"drop"}, ExitUsage, `no command "drop"`},
		{"no file", []string{"print"}, ExitUsage, "needs --config FILE"},
		{"no such file", []string{"print", "--config", "/no/such"}, ExitUsage, "/no/such"},
		{"no Cassandra", []string{"apply", "--config", with("")}, ExitUsage, "names no cassandra.hosts"},
		{"nobody answers", []string{"check", "--config", there}, ExitUnreachable, "127.0.0.1:1"},
		{"print the keyspace", []string{"print", "--config", there}, ExitOK, "KEYSPACE IF NOT EXISTS saltern_west"},
		{"print the copies", []string{"print", "--config", there}, ExitOK, "'dc7': 2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			code := Main(t.Context(), append([]string{"schema"}, c.args...), &stdout, &stderr)
			text := stderr.String()
			if c.code == ExitOK {
				text = stdout.String()
			}
			if code != c.code || !strings.Contains(text, c.want) {
				t.Errorf("exit code %d and %q; want %d and %q", code, text, c.code, c.want)
			}
		})
	}
}
