// Command saltern-testbed starts real stores for people, as the tests start them: on free ports of loopback, with all
// their files in one folder that is gone afterwards.
//
//	go run ./testbed/saltern-testbed redis cassandra
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"saltern/testbed"
)

func main() {
	// A second signal ends it at once; the testbed's reaper then tidies up.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "saltern-testbed:", err)
			os.Exit(1)
		}
	}
}

const usage = `usage: saltern-testbed [--masters N] STORE...

Starts stores, writes configuration files for saltern serve, and stays until Ctrl-C.

  redis            one Redis
  redis-cluster    a Redis Cluster of three nodes
  redis-sentinel   a primary, its replica and a sentinel
  cassandra        one Cassandra, which takes half a minute and 1 GB of memory

`

// run starts what is named, says where it is, and ends it with ctx.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	flags := flag.NewFlagSet("saltern-testbed", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprint(stderr, usage)
		flags.PrintDefaults()
	}
	masters := flags.Int("masters", 1, "`N` configuration files, for as many salterns that share the stores")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() == 0 || *masters < 1 {
		flags.Usage()
		return errors.New("name the stores to start, and at least one master")
	}
	bed, err := testbed.New("stores")
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, bed.Close()); err == nil {
			fmt.Fprintf(stdout, "Everything has stopped; %s is removed.\n", bed.Dir)
		}
	}()
	var c config
	for _, name := range flags.Args() {
		if err := start(ctx, bed, name, &c, stdout); err != nil {
			if ctx.Err() != nil {
				return nil // as the user wanted
			}
			return err
		}
	}
	var files []string
	if c.useful() {
		if files, err = c.write(bed, *masters); err != nil {
			return err
		}
	}
	invite(stdout, bed, files)
	<-ctx.Done()
	fmt.Fprintln(stdout, "\nStopping …")
	return nil
}

// start starts a store by its name and notes where it is.
func start(ctx context.Context, bed *testbed.Bed, name string, c *config, stdout io.Writer) error {
	s, err := c.add(bed, name)
	if err != nil {
		return err
	}
	begun := time.Now()
	fmt.Fprintf(stdout, "%s …", name)
	if err := bed.Start(ctx, s); err != nil {
		fmt.Fprintln(stdout, " failed")
		return err
	}
	fmt.Fprintf(stdout, " %s (%.1f s)\n", strings.Join(c.addresses(name), " "), time.Since(begun).Seconds())
	return nil
}

func invite(stdout io.Writer, bed *testbed.Bed, files []string) {
	fmt.Fprintf(stdout, "\nEverything is in %s; the logs are in its folder logs.\n", bed.Dir)
	if len(files) == 0 {
		fmt.Fprintln(stdout, "There is no configuration for saltern: it uses Redis before Cassandra only.")
	} else {
		fmt.Fprintf(stdout, "Make the tables, once:\n  bin/saltern schema apply --config %s\nThen:\n", files[0])
	}
	for _, file := range files {
		fmt.Fprintf(stdout, "  bin/saltern serve --config %s\n", file)
	}
	fmt.Fprintln(stdout, "Ctrl-C ends it and removes all of it; stop saltern first.")
}
