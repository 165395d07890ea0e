package cli

import "fmt"

// The exit codes of saltern.
const (
	ExitOK          = 0  // done
	ExitFailed      = 1  // it was tried and failed; stderr says why
	ExitUsage       = 2  // the command line or the configuration is wrong; nothing was done
	ExitUnreachable = 3  // the daemon could not be reached
	ExitRefused     = 4  // the daemon refused the request
	ExitNotFound    = 5  // what was asked for does not exist
	ExitIO          = 74 // the disk failed under the daemon (EX_IOERR); it stopped to lose nothing
)

// ExitError is an error with the exit code that it ends the process with.
type ExitError struct {
	Code int
	Err  error // nil when all has been said already
}

// Error gives the message.
func (e *ExitError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

// Unwrap gives the cause.
func (e *ExitError) Unwrap() error { return e.Err }
