// Command saltern keeps the jobs of Salt masters. See README.md.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"saltern/cli"
)

func main() {
	// The first signal asks for an orderly end; a second one ends the process at once, since the
	// first gives the default behaviour back.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(cli.Main(ctx, os.Args[1:], os.Stdout, os.Stderr))
}
