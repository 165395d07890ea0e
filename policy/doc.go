// Package policy holds decisions: when a breaker opens, how long a tier may take, how long a cache
// may keep a job. Each is a pure function or a small struct that is told what happened and says
// what to do. It does no I/O, logs nothing, starts no goroutine and imports nothing of ours.
package policy
