package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"saltern/testbed"
)

// envSalt names the Python environment with Salt that demo uses.
const envSalt = "SALTERN_SALT_ENV"

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

// demo is one Salt master on a Saltern, or two whose Salterns share their stores, in a folder of its own.
type demo struct {
	out       io.Writer
	env       string // Python environment with Salt
	returners string // folder of the returner
	masters   []*demoMaster
}

// demoMaster is a master with its minions and its Saltern.
type demoMaster struct {
	id      string
	minions []string
	daemon  *testbed.Daemon
	salt    *testbed.Salt
	client  *client
}

func runDemo(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := newFlags("demo", "", stderr)
	cluster := flags.Bool("cluster", false, "two masters, each with its own Saltern, over one Redis and one Cassandra")
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
	d := &demo{out: stdout, env: env, returners: returners}
	fmt.Fprintf(stdout, "Everything is in %s; nothing outside of it is touched.\n\n", bed.Dir)
	err = d.run(ctx, bed, *cluster, *once)
	if ctx.Err() != nil && *once {
		err = errors.New("interrupted before the answers were there")
	} else if ctx.Err() != nil {
		err = nil // as the user wanted
	}
	fmt.Fprint(stdout, "\nStopping everything …")
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
func (d *demo) run(ctx context.Context, bed *testbed.Bed, cluster, once bool) error {
	start := d.startOne
	if cluster {
		start = d.startCluster
	}
	if err := start(ctx, bed); err != nil {
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

// startOne starts one Saltern with its embedded store, its master and the minions.
func (d *demo) startOne(ctx context.Context, bed *testbed.Bed) error {
	m := &demoMaster{id: "salt", minions: []string{"alpha", "beta", "gamma"}}
	d.masters = []*demoMaster{m}
	if err := d.describe(bed, m); err != nil {
		return err
	}
	if err := d.step("Saltern starts", func() error { return bed.Start(ctx, m.daemon) }); err != nil {
		return err
	}
	return d.step("a salt-master and three salt-minions start (about 20 s)",
		func() error { return bed.Start(ctx, m.salt) })
}

// describe makes a master's Saltern and its Salt, which are not started. args are for saltern serve.
func (d *demo) describe(bed *testbed.Bed, m *demoMaster, args ...string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	m.daemon, err = testbed.NewDaemon(bed, testbed.DaemonOptions{Name: "saltern-" + m.id, Binary: self, Args: args})
	if err != nil {
		return err
	}
	if m.client, err = newClient(m.daemon.HTTP); err != nil {
		return err
	}
	saltern := map[string]any{"address": m.daemon.Address(), "spool_dir": filepath.Join(bed.Dir, "spool-"+m.id)}
	m.salt, err = testbed.NewSalt(bed, testbed.SaltOptions{
		Name:    m.id,
		Env:     d.env,
		Minions: m.minions,
		Master: map[string]any{
			"id":               m.id,
			"master_job_cache": "saltern",
			"event_return":     []string{"saltern"},
			"returner_dirs":    []string{d.returners},
			"saltern":          saltern,
		},
		Minion: map[string]any{"returner_dirs": []string{d.returners}, "saltern": saltern},
		States: map[string]string{"demo.sls": demoStates},
	})
	return err
}

// each does something with every master at the same time.
func (d *demo) each(do func(*demoMaster) error) error {
	errs := make([]error, len(d.masters))
	var wait sync.WaitGroup
	for i, m := range d.masters {
		wait.Go(func() { errs[i] = do(m) })
	}
	wait.Wait()
	return errors.Join(errs...)
}

// invite says what a person can try while the demo stays up.
func (d *demo) invite() {
	self, _ := os.Executable() // it was found before
	fmt.Fprint(d.out, "\nTry more, in another terminal:\n")
	for _, m := range d.masters {
		salt := func(program string) string {
			return filepath.Join(d.env, "bin", program) + " -c " + m.salt.MasterConfig
		}
		fmt.Fprintf(d.out, `  %s '*' cmd.run uptime
  %s jobs.list_jobs
  %s jobs list --http %s
  curl -s http://%s/v1/jobs?limit=3
`, salt("salt"), salt("salt-run"), self, m.daemon.HTTP, m.daemon.HTTP)
	}
	fmt.Fprintln(d.out, "Files:")
	for _, m := range d.masters {
		fmt.Fprintf(d.out, `  %s   the configuration of the master %s
  %s   what its Saltern keeps
  %s   the log of its Saltern
`, filepath.Join(m.salt.MasterConfig, "master"), m.id, m.daemon.Data, m.daemon.Log())
	}
	fmt.Fprintln(d.out, "Ctrl-C ends it and removes everything.")
}

// complain says what was wrong, with the ends of the logs.
func (d *demo) complain(faults []string) {
	fmt.Fprintf(d.out, "\nWrong:\n  %s\n", strings.Join(faults, "\n  "))
	for _, m := range d.masters {
		logs := []string{m.daemon.Log(), m.salt.MasterLog()}
		for _, id := range m.minions {
			logs = append(logs, m.salt.MinionLog(id))
		}
		for _, log := range logs {
			fmt.Fprintf(d.out, "\nThe end of %s:\n%s", log, harmlessLines(testbed.Tail(log, 15)))
		}
	}
}
