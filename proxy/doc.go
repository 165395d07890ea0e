// Package proxy reads through the tiers and writes to all of them. It knows no wire and names no
// concrete tier.
//
// A read asks the cache in the process, then the shared tiers from the fastest to the durable
// store, and fills what it passed on its way back up:
//
//	read.go           the entries: Head, Returns
//	read_coalesce.go  one flight a key, on a context of its own
//	read_cascade.go   tier by tier: hit, miss, absent, error, open and timeout told apart
//	read_backfill.go  what was found is merged into the tiers above
//
// A write goes to all tiers and is acknowledged once it is durable:
//
//	write.go          the entry: Write; stamps versions
//	write_fanout.go   all tiers at once; what a tier missed is remembered
//
// And around them:
//
//	guarded.go    a tier behind its deadlines and breakers
//	retention.go  how long caches keep a job, and the purge of the store
//	gate.go       no call goes on when the tiers close
//
// Invariants:
//
//  1. A fact is in the durable store before it is shown to the cache, and in the cache, if the
//     cache holds its job, before it is acknowledged. A read after an acknowledged write sees it.
//  2. No back-fill hides a fact: what is written while a read is under way is noted with that
//     read's fill and merged into it (fills).
//  3. "Not found" is said only when the durable store said so. When it could not be asked, the read
//     fails.
//  4. A caller that gives up cancels nothing for another.
//
// Until a fact is acknowledged, one read may see it and the next may not: the first asked the store,
// the second the cache.
package proxy
