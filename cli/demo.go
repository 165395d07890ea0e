package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"saltern/testbed"
)

// envSalt names the Python environment with Salt that demo uses.
const envSalt = "SALTERN_SALT_ENV"

// demoMinions are the minions of the demo.
var demoMinions = []string{"alpha", "beta", "gamma"}

// demoStates is a run of 30 states, a third of which report changes.
const demoStates = `{% for i in range(10) %}
nothing-{{ i }}:
  test.nop
changed-{{ i }}:
  test.succeed_with_changes
same-{{ i }}:
  test.succeed_without_changes
{% endfor %}
`

const demoStateCount = 30

// demo is a Salt master with three minions on a Saltern, in a folder of its own.
type demo struct {
	out    io.Writer
	env    string // Python environment with Salt
	daemon *testbed.Daemon
	salt   *testbed.Salt
	client *client
}

func runDemo(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := newFlags("demo", "", stderr)
	once := flags.Bool("once", false, "end after the answers; exit code 0 only if every one was right")
	envFlag := flags.String("salt", os.Getenv(envSalt), "Python `ENVIRONMENT` with Salt (environment: "+envSalt+")")
	file := flags.String("returner", "", "returner `FILE` (default: that of the checkout or installation of this program)")
	if err := parseFlags(flags, args, 0); err != nil {
		return err
	}
	env, returners, err := demoPlaces(*envFlag, *file)
	if err != nil {
		return err
	}
	bed, err := testbed.New("demo")
	if err != nil {
		return err
	}
	d := &demo{out: stdout, env: env}
	fmt.Fprintf(stdout, "Everything is in %s; nothing outside of it is touched.\n\n", bed.Dir)
	err = d.run(ctx, bed, returners, *once)
	if ctx.Err() != nil && *once {
		err = errors.New("interrupted before the answers were there")
	} else if ctx.Err() != nil {
		err = nil // as the user wanted
	}
	fmt.Fprint(stdout, "\nStopping the minions, the master and Saltern …")
	if closeErr := bed.Close(); closeErr != nil {
		fmt.Fprintln(stdout, " failed")
		return errors.Join(err, closeErr)
	}
	fmt.Fprintf(stdout, " done; %s is removed.\n", bed.Dir)
	return err
}

// demoPlaces finds the Python environment and the folder of the returner, as absolute paths.
func demoPlaces(env, returner string) (envDir, returners string, err error) {
	if env == "" {
		return "", "", usageError("a Python environment with Salt is needed: make demo makes one; else --salt or %s names it", envSalt)
	}
	if env, err = filepath.Abs(env); err != nil {
		return "", "", err
	}
	if !isFile(filepath.Join(env, "bin", "salt-master")) {
		return "", "", usageError("%s has no bin/salt-master: name a Python environment with Salt", env)
	}
	if returner == "" {
		dir := returnerDir()
		if dir == "" {
			return "", "", usageError("the returner is needed: --returner .../%s", returnerFile)
		}
		return env, dir, nil
	}
	if returner, err = filepath.Abs(returner); err != nil {
		return "", "", err
	}
	if !isFile(returner) {
		return "", "", usageError("there is no %s", returner)
	}
	return env, filepath.Dir(returner), nil
}

// run is the demo, from the start of the daemons to the wish of the user to end it.
func (d *demo) run(ctx context.Context, bed *testbed.Bed, returners string, once bool) error {
	if err := d.start(ctx, bed, returners); err != nil {
		return err // with the end of the log of what did not start
	}
	faults, err := d.play(ctx)
	if err != nil && ctx.Err() == nil {
		faults = append(faults, harmlessLines(err.Error()))
	}
	switch {
	case ctx.Err() != nil:
		return nil
	case len(faults) > 0:
		d.complain(faults)
		if once {
			return fmt.Errorf("%d answers were wrong", len(faults))
		}
	default:
		fmt.Fprint(d.out, "\nEvery answer was right.\n")
	}
	if !once {
		d.invite()
		<-ctx.Done()
	}
	return nil
}

// start starts Saltern, the master and the minions.
func (d *demo) start(ctx context.Context, bed *testbed.Bed, returners string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if d.daemon, err = testbed.NewDaemon(bed, testbed.DaemonOptions{Binary: self}); err != nil {
		return err
	}
	if d.client, err = newClient(d.daemon.HTTP); err != nil {
		return err
	}
	saltern := map[string]any{"address": d.daemon.Address(), "spool_dir": filepath.Join(bed.Dir, "spool")}
	d.salt, err = testbed.NewSalt(bed, testbed.SaltOptions{
		Env:     d.env,
		Minions: demoMinions,
		Master: map[string]any{
			"master_job_cache": "saltern",
			"event_return":     []string{"saltern"},
			"returner_dirs":    []string{returners},
			"saltern":          saltern,
		},
		Minion: map[string]any{"returner_dirs": []string{returners}, "saltern": saltern},
		States: map[string]string{"demo.sls": demoStates},
	})
	if err != nil {
		return err
	}
	if err := d.step("Saltern starts", func() error { return bed.Start(ctx, d.daemon) }); err != nil {
		return err
	}
	return d.step("a salt-master and three salt-minions start (about 20 s)",
		func() error { return bed.Start(ctx, d.salt) })
}

// invite says what a person can try while the demo stays up.
func (d *demo) invite() {
	self, _ := os.Executable() // it was found before
	salt := func(program string) string {
		return filepath.Join(d.env, "bin", program) + " -c " + d.salt.MasterConfig
	}
	fmt.Fprintf(d.out, `
Try more, in another terminal:
  %s '*' cmd.run uptime
  %s jobs.list_jobs
  %s jobs list --http %s
  curl -s http://%s/v1/jobs?limit=3
Files:
  %s   the master's configuration
  %s   the store
  %s   the log of Saltern
Ctrl-C ends it and removes everything.
`, salt("salt"), salt("salt-run"), self, d.daemon.HTTP, d.daemon.HTTP,
		filepath.Join(d.salt.MasterConfig, "master"), d.daemon.Data, d.daemon.Log())
}

// complain says what was wrong, with the ends of the logs.
func (d *demo) complain(faults []string) {
	fmt.Fprintf(d.out, "\nWrong:\n  %s\n", strings.Join(faults, "\n  "))
	for _, log := range append([]string{d.daemon.Log(), d.salt.MasterLog()}, d.minionLogs()...) {
		fmt.Fprintf(d.out, "\nThe end of %s:\n%s", log, harmlessLines(testbed.Tail(log, 15)))
	}
}

func (d *demo) minionLogs() []string {
	var logs []string
	for _, id := range demoMinions {
		logs = append(logs, d.salt.MinionLog(id))
	}
	return logs
}
