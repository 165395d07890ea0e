package journal

import (
	"log/slog"

	"github.com/cockroachdb/pebble/v2"
)

func openPebble(dir string, logger *slog.Logger, fatal func(error)) (*pebble.DB, error) {
	return pebble.Open(dir, &pebble.Options{Logger: quiet{}})
}

type quiet struct{}

func (quiet) Infof(string, ...any)         {}
func (quiet) Errorf(string, ...any)        {}
func (quiet) Fatalf(f string, args ...any) { panic(f) }
