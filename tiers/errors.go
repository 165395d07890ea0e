package tiers

import (
	"errors"
	"fmt"
)

// What a caller decides on. A tier wraps them with what it was doing; compare with errors.Is.
var (
	// ErrNotFound is returned when the tier does not have what was asked for. From a Store it means
	// that there is none; from a cache that a lower tier has to be asked.
	ErrNotFound = errors.New("not found")
	// ErrAbsent is returned by a cache that knows, from the durable store and not long ago, that
	// there is no such job. The caller need not ask further.
	ErrAbsent = errors.New("known to be absent")
	// ErrOpen is returned for a tier whose breaker is open: it was not asked.
	ErrOpen = errors.New("breaker open")
	// ErrTimeout is returned when the tier did not answer within its own time (not the caller's).
	ErrTimeout = errors.New("tier timed out")
	// ErrBusy is returned when all that this process may have under way with the tier is: an ErrUnavailable that says
	// nothing about the tier's health.
	ErrBusy = fmt.Errorf("%w: busy", ErrUnavailable)
	// ErrFull is returned when a write is refused to keep the disk or quota from running full.
	// Nothing of it was stored; the caller may try again when there is room.
	ErrFull = errors.New("storage full")
	// ErrTooLarge is returned when a value is above what the tier takes. Trying again is of no use.
	ErrTooLarge = errors.New("value too large")
	// ErrInvalid is returned for a request that can never succeed, such as a cursor that the tier
	// did not give out.
	ErrInvalid = errors.New("invalid request")
	// ErrUnavailable is returned when the tier cannot be asked now.
	ErrUnavailable = errors.New("store unavailable")
)

// Miss is an ErrNotFound with which a cache leased the right to fill it.
type Miss struct {
	// Lease goes into the Snapshot of the fill.
	Lease string
}

// Error says what ErrNotFound says.
func (m *Miss) Error() string { return fmt.Sprintf("%v, lease %s", ErrNotFound, m.Lease) }

// Is makes a Miss an ErrNotFound.
func (m *Miss) Is(target error) bool { return target == ErrNotFound }
