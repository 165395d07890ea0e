package cli

import (
	"context"
	"errors"
	"io"
)

func runDemo(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	return errors.New("not yet built")
}
