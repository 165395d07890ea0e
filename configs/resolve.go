package configs

import (
	"os"
	"path/filepath"
	"strings"
)

// Env is what the defaults for data-dir and listen depend on.
type Env struct {
	Getenv func(string) string
	Root   bool // the process runs as root
}

// ProcessEnv is that of this process.
func ProcessEnv() Env { return Env{Getenv: os.Getenv, Root: os.Geteuid() == 0} }

// Resolve fills in DataDir and Listen where they were left empty: where systemd says, else the
// system's folders for root, else the user's own (XDG Base Directory Specification). Call it after
// the flags of the command line are applied.
func (c *Config) Resolve(e Env) {
	if c.DataDir == "" {
		c.DataDir = e.dataDir()
	}
	if len(c.Listen) == 0 {
		c.Listen = []string{"unix:" + filepath.Join(e.socketDir(c.DataDir), "saltern.sock")}
	}
}

func (e Env) dataDir() string {
	switch state := e.Getenv("XDG_STATE_HOME"); {
	case e.first("STATE_DIRECTORY") != "":
		return e.first("STATE_DIRECTORY")
	case e.Root:
		return "/var/lib/saltern"
	case filepath.IsAbs(state):
		return filepath.Join(state, "saltern")
	default:
		return filepath.Join(e.Getenv("HOME"), ".local", "state", "saltern")
	}
}

func (e Env) socketDir(dataDir string) string {
	switch runtime := e.Getenv("XDG_RUNTIME_DIR"); {
	case e.first("RUNTIME_DIRECTORY") != "":
		return e.first("RUNTIME_DIRECTORY")
	case e.Root:
		return "/run/saltern"
	case filepath.IsAbs(runtime):
		return runtime
	default:
		return dataDir
	}
}

// first is the first of the folders that systemd names in a variable, divided by colons.
func (e Env) first(name string) string {
	dir, _, _ := strings.Cut(e.Getenv(name), ":")
	return dir
}
