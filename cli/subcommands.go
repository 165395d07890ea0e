package cli

import (
	"context"
	"io"
	"strings"
)

// subcommands is a command that has commands of its own.
type subcommands struct {
	name, usage string
	list        []command
}

// run runs the one that args name.
func (s subcommands) run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) == 0 {
		_, _ = io.WriteString(stderr, s.usage)
		return usageError("%s needs %s", s.name, s.choice())
	}
	for _, c := range s.list {
		if c.name == args[0] {
			return c.run(ctx, args[1:], stdout, stderr)
		}
	}
	switch args[0] {
	case "-h", "-help", "--help", "help":
		_, err := io.WriteString(stdout, s.usage)
		return err
	}
	_, _ = io.WriteString(stderr, s.usage)
	return usageError("%s has no command %q", s.name, args[0])
}

// choice is "a, b or c".
func (s subcommands) choice() string {
	names := make([]string, len(s.list))
	for i, c := range s.list {
		names[i] = c.name
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}
