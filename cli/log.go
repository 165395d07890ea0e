package cli

import (
	"context"
	"fmt"
	"io"
)

// runLog says from which level on the daemon logs, and changes it until the daemon stops.
func runLog(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := newFlags("log", "", stderr)
	address := flags.String("address", "", "of the daemon, unix:`PATH` or tcp:HOST:PORT")
	level := flags.String("level", "", "debug, info, warn or error: `LEVEL` from now on, until the daemon stops")
	if err := parseFlags(flags, args, 0); err != nil {
		return err
	}
	now, err := callJournal(ctx, *address, "log_level", *level)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "log level %v\n", now)
	return err
}
