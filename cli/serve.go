package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"saltern/configs"
)

func runServe(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	c, err := serveConfig(args, stderr)
	if err != nil {
		return err
	}
	log := newLogger(c.Log, stderr)
	d, err := open(c, log)
	if err != nil {
		return err
	}
	log.Info("saltern is ready", "version", versionString(), "data", c.DataDir,
		"listen", strings.Join(c.Listen, " "), "http", d.httpAddr)
	printSetup(stdout, c, d.httpAddr)
	select {
	case <-ctx.Done():
	case err := <-d.fatal:
		// Nothing is closed in order: a write after a failed fsync could hide that what was written
		// before it is gone. The log of the store is read again at the next start.
		return &ExitError{Code: ExitIO, Err: fmt.Errorf(
			"the disk failed under the store: %w; see to the disk of %s, then start saltern again", err, c.DataDir)}
	}
	log.Info("saltern stops: what was accepted is finished", "within", d.grace)
	if err := d.stop(); err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	log.Info("saltern has stopped")
	return nil
}

// serveConfig reads the configuration file and lays the flags over it.
func serveConfig(args []string, stderr io.Writer) (*configs.Config, error) {
	flags := flag.NewFlagSet("saltern serve", flag.ContinueOnError)
	flags.SetOutput(stderr)
	file := flags.String("config", "", "configuration `FILE` (YAML; configs/all-options.yaml has every key)")
	dataDir := flags.String("data-dir", "", "`DIR` of the embedded store")
	listen := flags.String("listen", "", "where Salt connects: unix:`PATH` or tcp:HOST:PORT")
	http := flags.String("http", "", "`ADDR` for people, or off (default 127.0.0.1:4531)")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil, err
		}
		return nil, &ExitError{Code: ExitUsage} // the flag set has said why
	}
	if flags.NArg() > 0 {
		return nil, &ExitError{Code: ExitUsage, Err: fmt.Errorf("serve takes no argument %q", flags.Arg(0))}
	}
	c := configs.Default()
	if *file != "" {
		var err error
		if c, err = configs.Load(*file); err != nil {
			return nil, &ExitError{Code: ExitUsage, Err: err}
		}
	}
	if *dataDir != "" {
		c.DataDir = *dataDir
	}
	if *listen != "" {
		c.Listen = []string{*listen}
	}
	if *http != "" {
		c.HTTP = *http
	}
	c.Resolve(configs.ProcessEnv())
	if err := c.Validate(); err != nil {
		return nil, &ExitError{Code: ExitUsage, Err: err}
	}
	return c, nil
}

func newLogger(c configs.Log, w io.Writer) *slog.Logger {
	level := &slog.LevelVar{}
	_ = level.UnmarshalText([]byte(c.Level)) // Validate has seen it
	o := &slog.HandlerOptions{Level: level}
	if c.Format == "json" {
		return slog.New(leveled{slog.NewJSONHandler(w, o), level})
	}
	return slog.New(leveled{slog.NewTextHandler(w, o), level})
}

// leveled is a handler whose level can be changed, also under the loggers made of it.
type leveled struct {
	slog.Handler
	level *slog.LevelVar
}

// defaultAddress is where the returner looks when nothing is configured.
const defaultAddress = "unix:/run/saltern/saltern.sock"

// printSetup says what to put into the master's configuration.
func printSetup(w io.Writer, c *configs.Config, httpAddr string) {
	var b strings.Builder
	b.WriteString("Saltern is ready. Put this into the master's configuration, /etc/salt/master.d/saltern.conf:\n\n")
	b.WriteString("  master_job_cache: saltern\n  event_return: [saltern]\n")
	if dir := returnerDir(); dir != "" {
		fmt.Fprintf(&b, "  returner_dirs: [%s]\n", dir)
	} else {
		b.WriteString("  returner_dirs: [DIR]   # the folder with salt/src/saltext/saltern/returners/saltern.py of the source\n")
	}
	if c.Listen[0] != defaultAddress {
		fmt.Fprintf(&b, "  saltern:\n    address: %s\n", c.Listen[0])
	}
	b.WriteString("\nand restart salt-master. saltern doctor says what is wrong if it does not work.\n")
	if httpAddr != "" {
		fmt.Fprintf(&b, "Jobs: saltern jobs list, or http://%s/v1/jobs\n", httpAddr)
	}
	_, _ = io.WriteString(w, b.String())
}

// returnerFile is where the returner is below a checkout or an installation.
const returnerFile = "salt/src/saltext/saltern/returners/saltern.py"

// returnerDir is the folder with the returner that belongs to this program: that of the checkout
// it was built in, or of the installation; empty when there is none.
func returnerDir() string {
	exe, err := os.Executable()
	if err != nil {
		return ""
	}
	prefix := filepath.Dir(filepath.Dir(exe))
	for _, file := range []string{
		filepath.Join(prefix, returnerFile),
		filepath.Join(prefix, "share", "saltern", "returners", "saltern.py"),
	} {
		if _, err := os.Stat(file); err == nil {
			return filepath.Dir(file)
		}
	}
	return ""
}
