package cli_test

import (
	"testing"

	"saltern/cli"
)

// TestLogLevelChangesAtRunTime: the level is changed in the daemon that runs, and a word that is none is refused.
func TestLogLevelChangesAtRunTime(t *testing.T) {
	address := "unix:" + serve(t).socket
	wantContains(t, saltern(t, "log", "--address", address).wantCode(t, cli.ExitOK).stdout, "log level info")
	wantContains(t, saltern(t, "log", "--level", "debug", "--address", address).wantCode(t, cli.ExitOK).stdout, "log level debug")
	wantContains(t, saltern(t, "log", "--address", address).wantCode(t, cli.ExitOK).stdout, "log level debug")
	wantContains(t, saltern(t, "log", "--level", "loud", "--address", address).wantCode(t, cli.ExitRefused).stderr, "loud", "debug, info, warn or error")
}
