// Package telemetry says what the daemon does: a record of every call with the lookups it made, the
// metrics, the slow calls, and traces. It decides nothing and slows nothing: what cannot be taken
// at once is dropped and counted. No payload and no secret comes here; the most that a record has of
// a job is its jid.
//
// A call (Call) is what a client asked for; a lookup (Lookup) is one read or write of a job in it; a
// step (Step) is one tier that the lookup asked. They are of a fixed size and live where the call is
// worked on, so that a read that the cache in the process answers costs no allocation and, but for one
// in SampleEvery, no look at a clock. Spans are made of them afterwards, for the calls that are worth
// it alone.
package telemetry
