package testbed

import "context"

// Service is a part of the bed.
type Service interface {
	// Name is for messages and for the names of files.
	Name() string
	// Start returns when the service does its work, or says why it does not, with the end of its log.
	Start(ctx context.Context) error
	// Stop ends the service in its own order and waits until nothing of it runs. It may be called more
	// than once, and of a service that was never started.
	Stop() error
}
