package server

import (
	"context"
	"errors"
	"net/http"

	"saltern/tiers"
)

var (
	errBusy        = errors.New("too many requests at once")
	errUnsupported = errors.New("unsupported")
	errForbidden   = errors.New("forbidden")
)

// kind is an error as the wire and HTTP name it.
type kind struct {
	is     error
	name   string
	status int
}

// kinds are looked through in order. What is none of them is "unavailable": the caller may try
// again, and a write that it holds goes to its spool and not to waste.
var kinds = []kind{
	{errBusy, "busy", http.StatusTooManyRequests},
	{tiers.ErrFull, "full", http.StatusInsufficientStorage},
	{tiers.ErrTooLarge, "too-large", http.StatusRequestEntityTooLarge},
	{errForbidden, "forbidden", http.StatusForbidden},
	{errUnsupported, "unsupported", http.StatusBadRequest},
	{tiers.ErrInvalid, "invalid", http.StatusBadRequest},
	{tiers.ErrNotFound, "not-found", http.StatusNotFound},
	{tiers.ErrTimeout, "unavailable", http.StatusServiceUnavailable},
	{context.DeadlineExceeded, "unavailable", http.StatusServiceUnavailable},
}

func kindOf(err error) kind {
	for _, k := range kinds {
		if errors.Is(err, k.is) {
			return k
		}
	}
	return kind{err, "unavailable", http.StatusServiceUnavailable}
}

// errorName is the name of an error on the wire; docs/protocol.md has the list.
func errorName(err error) string { return kindOf(err).name }

// statusOf is the HTTP status of an error.
func statusOf(err error) int { return kindOf(err).status }
