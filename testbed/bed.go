package testbed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
)

// Bed is a folder and the services that run in it. It may be used by several goroutines.
type Bed struct {
	// Dir is short: a path of a Unix socket ends at 107 characters.
	Dir string

	reaper *reaper

	mu       sync.Mutex
	services []Service // in the order of their start
	closed   bool
}

// New makes a bed in a new folder of the system's folder for temporary files; name is a part of its name.
func New(name string) (*Bed, error) {
	parent := os.TempDir()
	// Salt's longest socket is some 60 characters below the folder of a master.
	if len(parent) > 30 {
		parent = "/tmp"
	}
	dir, err := os.MkdirTemp(parent, "st-"+name+"-")
	if err != nil {
		return nil, fmt.Errorf("making the folder of the testbed: %w", err)
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, fmt.Errorf("the folder of the testbed: %w", err)
	}
	r, err := startReaper(dir)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return &Bed{Dir: dir, reaper: r}, nil
}

// Start starts a service and keeps it until Close. What fails to start is stopped again.
func (b *Bed) Start(ctx context.Context, s Service) error {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return fmt.Errorf("starting %s: the testbed is closed", s.Name())
	}
	if !slices.Contains(b.services, s) {
		b.services = append(b.services, s)
	}
	b.mu.Unlock()
	if err := s.Start(ctx); err != nil {
		return errors.Join(fmt.Errorf("starting %s: %w", s.Name(), err), s.Stop())
	}
	return nil
}

// Close stops all services, the last started first, and removes the folder. Nothing of the bed runs when it
// returns. A second call does nothing.
func (b *Bed) Close() error {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return nil
	}
	b.closed = true
	services := b.services
	b.mu.Unlock()
	var errs []error
	for _, s := range slices.Backward(services) {
		if err := s.Stop(); err != nil {
			errs = append(errs, fmt.Errorf("stopping %s: %w", s.Name(), err))
		}
	}
	// The reaper sweeps what has left its process group, as the jobs of a minion do, and removes the folder.
	errs = append(errs, b.reaper.finish())
	return errors.Join(errs...)
}
