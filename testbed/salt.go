package testbed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// SaltOptions says how a master and its minions are set up.
type SaltOptions struct {
	// Name tells several masters of one bed apart; "salt" when empty. Short: it is a part of socket paths.
	Name string
	// Env is the Python environment with Salt.
	Env string
	// Minions are the ids. They are part of paths of files.
	Minions []string
	// Master and Minion are added to the configurations, and win over what the testbed sets.
	Master, Minion map[string]any
	// States and Pillar are files below the master's file_roots and pillar_roots: path → content.
	States, Pillar map[string]string
}

// Salt is a salt-master and its minions. It is a Service.
type Salt struct {
	// MasterConfig is the folder of the master's configuration, for salt -c.
	MasterConfig string
	// Dir is the folder of everything of this master and its minions.
	Dir string

	bed     *Bed
	options SaltOptions
	master  *Process
	minions map[string]*Process
}

// NewSalt writes the configurations; Bed.Start starts the processes.
func NewSalt(b *Bed, o SaltOptions) (*Salt, error) {
	if o.Name == "" {
		o.Name = "salt"
	}
	s := &Salt{Dir: filepath.Join(b.Dir, o.Name), bed: b, options: o, minions: map[string]*Process{}}
	s.MasterConfig = filepath.Join(s.Dir, "m")
	ports, err := FreePorts(2)
	if err != nil {
		return nil, err
	}
	me, err := user.Current()
	if err != nil {
		return nil, fmt.Errorf("the name of this user, which Salt's user option needs: %w", err)
	}
	master := map[string]any{
		"interface":          "127.0.0.1",
		"publish_port":       ports[0],
		"ret_port":           ports[1],
		"user":               me.Username,
		"auto_accept":        true,
		"worker_threads":     3,
		"timeout":            20,
		"gather_job_timeout": 20,
		"file_roots":         map[string]any{"base": []string{filepath.Join(s.MasterConfig, "states")}},
		"pillar_roots":       map[string]any{"base": []string{filepath.Join(s.MasterConfig, "pillar")}},
	}
	if err := s.writeConfig(s.MasterConfig, "master", master, o.Master); err != nil {
		return nil, err
	}
	for _, id := range o.Minions {
		minion := map[string]any{
			"id":                   id,
			"user":                 me.Username,
			"master":               "127.0.0.1",
			"master_port":          ports[1],
			"publish_port":         ports[0],
			"acceptance_wait_time": 1,
			"random_reauth_delay":  1,
			"recon_default":        100,
			"recon_max":            500,
			// Looking names of addresses up can take many seconds where there is no name server.
			"enable_fqdns_grains": false,
		}
		if err := s.writeConfig(s.MinionConfig(id), "minion", minion, o.Minion); err != nil {
			return nil, err
		}
	}
	for folder, files := range map[string]map[string]string{"states": o.States, "pillar": o.Pillar} {
		for name, content := range files {
			if err := writeFile(filepath.Join(s.MasterConfig, folder, name), content); err != nil {
				return nil, err
			}
		}
	}
	return s, nil
}

// MinionConfig is the folder of a minion's configuration, for salt-call -c.
func (s *Salt) MinionConfig(id string) string { return filepath.Join(s.Dir, id) }

// writeConfig writes a configuration with everything of Salt in its folder: JSON, which Salt reads as the YAML
// that it is.
func (s *Salt) writeConfig(dir, name string, config, more map[string]any) error {
	for key, value := range map[string]any{
		"root_dir": dir, "pki_dir": "pki", "cachedir": "cache", "sock_dir": "run", "pidfile": name + ".pid",
		"log_file": filepath.Join(dir, "log"), "log_level": "warning", "log_level_logfile": "info",
		"extension_modules": "ext", "conf_file": filepath.Join(dir, name), "default_include": "d/*.conf",
	} {
		config[key] = value
	}
	for key, value := range more {
		config[key] = value
	}
	text, err := json.MarshalIndent(config, "", "  ")
	if err != nil {
		return fmt.Errorf("the configuration of %s: %w", name, err)
	}
	return writeFile(filepath.Join(dir, name), string(text)+"\n")
}

func writeFile(path, content string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(content), 0o644)
}

// Name implements Service.
func (s *Salt) Name() string { return s.options.Name }

// Start implements Service: it returns when every minion has answered test.ping. It may be called after Stop.
func (s *Salt) Start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	if err := s.StartMaster(ctx); err != nil {
		return err
	}
	if err := s.startMinions(ctx, s.options.Minions...); err != nil {
		return err
	}
	return s.answered(ctx)
}

// StartMaster starts the master alone, and returns when it takes connections.
func (s *Salt) StartMaster(ctx context.Context) error {
	p, err := startProcess(s.bed, s.options.Name+"-master", nil, s.bin("salt-master"), "-c", s.MasterConfig)
	if err != nil {
		return err
	}
	s.master = p
	config, err := readConfig(filepath.Join(s.MasterConfig, "master"))
	if err != nil {
		return err
	}
	return p.await(ctx, 50*time.Millisecond, func(context.Context) error {
		for _, key := range []string{"publish_port", "ret_port"} {
			c, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", fmt.Sprint(config[key])))
			if err != nil {
				return err
			}
			_ = c.Close()
		}
		return nil
	})
}

// startMinions returns when each has its key accepted and listens to its master.
func (s *Salt) startMinions(ctx context.Context, ids ...string) error {
	for _, id := range ids {
		// The log of an earlier start would say that this one is ready.
		if err := os.Remove(filepath.Join(s.MinionConfig(id), "log")); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		p, err := startProcess(s.bed, s.options.Name+"-"+id, nil, s.bin("salt-minion"), "-c", s.MinionConfig(id))
		if err != nil {
			return err
		}
		s.minions[id] = p
	}
	for _, id := range ids {
		log := filepath.Join(s.MinionConfig(id), "log")
		if err := s.minions[id].await(ctx, 100*time.Millisecond, func(context.Context) error {
			text, err := os.ReadFile(log)
			if err != nil {
				return err
			}
			if !strings.Contains(string(text), "Minion is ready to receive requests!") {
				return errors.New("it has not reached its master")
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// answered waits until every minion has answered test.ping.
func (s *Salt) answered(ctx context.Context) error {
	if len(s.options.Minions) == 0 {
		return nil
	}
	return s.master.await(ctx, 200*time.Millisecond, func(ctx context.Context) error {
		out, err := s.Run(ctx, "salt", "-t", "5", "--static", "--out=json", "*", "test.ping")
		if err != nil {
			return err
		}
		answers := map[string]any{}
		if err := json.Unmarshal([]byte(out.Stdout), &answers); err != nil {
			return fmt.Errorf("test.ping gave %q %q", out.Stdout, out.Stderr)
		}
		for _, id := range s.options.Minions {
			if answers[id] != true {
				return fmt.Errorf("minion %s has not answered test.ping", id)
			}
		}
		return nil
	})
}

// Stop implements Service: the minions first, all at once, then the master.
func (s *Salt) Stop() error {
	var wait sync.WaitGroup
	errs := make([]error, len(s.options.Minions))
	for i, id := range s.options.Minions {
		if p := s.minions[id]; p != nil {
			wait.Go(func() { errs[i] = terminateSalt(p) })
		}
	}
	wait.Wait()
	return errors.Join(append(errs, s.StopMaster())...)
}

// StopMaster stops the master alone; the minions wait for it to come back.
func (s *Salt) StopMaster() error {
	if s.master == nil {
		return nil
	}
	return terminateSalt(s.master)
}

func terminateSalt(p *Process) error {
	_ = p.Signal(syscall.SIGCONT)
	return p.Terminate(20 * time.Second)
}

// RestartMaster stops the master, changes its configuration (a value of nil removes the key), starts it again
// and waits for all minions.
func (s *Salt) RestartMaster(ctx context.Context, changes map[string]any) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	if err := s.StopMaster(); err != nil {
		return err
	}
	path := filepath.Join(s.MasterConfig, "master")
	config, err := readConfig(path)
	if err != nil {
		return err
	}
	for key, value := range changes {
		if config[key] = value; value == nil {
			delete(config, key)
		}
	}
	text, err := json.MarshalIndent(config, "", "  ")
	if err != nil {
		return err
	}
	if err := writeFile(path, string(text)+"\n"); err != nil {
		return err
	}
	if err := s.StartMaster(ctx); err != nil {
		return err
	}
	return s.answered(ctx)
}

// Master is the process of the master, for signals.
func (s *Salt) Master() *Process { return s.master }

// Minion is the process of a minion, for signals.
func (s *Salt) Minion(id string) *Process { return s.minions[id] }

// MasterLog is the path of the master's own log.
func (s *Salt) MasterLog() string { return filepath.Join(s.MasterConfig, "log") }

// MinionLog is the path of a minion's own log.
func (s *Salt) MinionLog(id string) string { return filepath.Join(s.MinionConfig(id), "log") }

func (s *Salt) bin(program string) string { return filepath.Join(s.options.Env, "bin", program) }

func readConfig(path string) (map[string]any, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	config := map[string]any{}
	if err := json.Unmarshal(text, &config); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for key, value := range config {
		// Ports must not come back as 2.1e+04.
		if f, ok := value.(float64); ok {
			config[key] = json.Number(strconv.FormatFloat(f, 'f', -1, 64))
		}
	}
	return config, nil
}
