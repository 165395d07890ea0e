// Package backplane tells the proxies that share their stores what was written, so that each can drop from its
// memory what another one has changed. It is one Redis Stream for each namespace.
//
// An entry has the name of its sender, the sender's own number, which counts its entries, and jobs: for each the
// kind and version of the latest fact. It is sent once the shared tiers have the fact. Whoever receives it
// evicts; it does not read again.
//
// Nothing is kept for a receiver but its cursor, and the stream is short, so entries can be lost: trimmed before
// they were read, flushed, dropped by a sender that could not reach Redis for long, or never sent by one that
// crashed. Each of these is a gap, and seen as one:
//
//   - the numbers of a sender have a hole; a beat, an entry without jobs, repeats the last number four times a
//     second, so that the last entry cannot be lost unseen
//   - a sender is new: the one that it may have been before may have died with something to say
//   - a sender has gone silent without a farewell
//   - the stream began anew, with ids before the cursor
//   - reading begins
//
// At a gap the receiver does not know what it missed, and drops all jobs that may still change.
//
// Each proxy reads its own beats too. When the last one that it has read is old, either way is broken: it is
// blind, Healthy says so, and memory must not be trusted for longer than the bound of staleness.
package backplane
