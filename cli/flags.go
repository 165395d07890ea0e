package cli

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// newFlags makes the flag set of a command. arguments is what stands after the flags in its usage.
func newFlags(command, arguments string, stderr io.Writer) *flag.FlagSet {
	flags := flag.NewFlagSet("saltern "+command, flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprintln(flags.Output(), strings.TrimSpace("usage: saltern "+command+" [flags] "+arguments))
		flags.PrintDefaults()
	}
	return flags
}

// parseFlags parses a command line on which exactly want arguments stand. Flags may also stand
// after the first argument, as people write them.
func parseFlags(flags *flag.FlagSet, args []string, want int) error {
	var plain []string
	for {
		if err := flags.Parse(args); err != nil {
			if errors.Is(err, flag.ErrHelp) {
				return err
			}
			return &ExitError{Code: ExitUsage} // the flag set has said why
		}
		if args = flags.Args(); len(args) == 0 {
			break
		}
		plain, args = append(plain, args[0]), args[1:]
	}
	switch {
	case len(plain) > want:
		return usageError("%s takes no argument %q", flags.Name(), plain[want])
	case len(plain) < want:
		return usageError("%s needs an argument; %s -h says which", flags.Name(), flags.Name())
	}
	return flags.Parse(append([]string{"--"}, plain...))
}

func usageError(format string, args ...any) error {
	return &ExitError{Code: ExitUsage, Err: fmt.Errorf(format, args...)}
}

// moment is a flag with a point in time. Its zero value is none.
type moment struct {
	time.Time
	now func() time.Time
}

// String gives the time as RFC 3339, empty when there is none.
func (m *moment) String() string {
	if m.IsZero() {
		return ""
	}
	return m.Format(time.RFC3339Nano)
}

// dateForms are the forms without a zone, which are taken as local time.
var dateForms = []string{"2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02T15:04:05", "2006-01-02T15:04", time.DateOnly}

// Set reads a time span before now (90s, 2h, 7d, 1d12h), RFC 3339, or a local date with or without
// a time.
func (m *moment) Set(s string) error {
	if t, err := time.Parse(time.RFC3339Nano, s); err == nil {
		m.Time = t
		return nil
	}
	for _, form := range dateForms {
		if t, err := time.ParseInLocation(form, s, time.Local); err == nil {
			m.Time = t
			return nil
		}
	}
	span, err := parseSpan(s)
	if err != nil {
		return fmt.Errorf("a span before now (90s, 2h, 7d), a date (2026-12-31, 2026-12-31 23:59) or RFC 3339 is needed")
	}
	m.Time = m.now().Add(-span)
	return nil
}

// parseSpan reads a duration that may begin with a number of days.
func parseSpan(s string) (time.Duration, error) {
	var days int
	if digits, rest, found := strings.Cut(s, "d"); found {
		var err error
		if days, err = strconv.Atoi(digits); err != nil || days > 36500 {
			return 0, fmt.Errorf("%q is no number of days", digits)
		}
		if s = rest; s == "" {
			s = "0"
		}
	}
	span, err := time.ParseDuration(s)
	if err == nil && (span < 0 || days < 0) {
		err = fmt.Errorf("%q is in the future", s)
	}
	return span + time.Duration(days)*24*time.Hour, err
}
