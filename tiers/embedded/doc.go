// Package embedded is the durable tier: jobs and events in one folder, on pebble. It decides nothing
// about facts; how two of them become one is package job's.
//
// # Writing
//
// All facts of a Merge become one batch: the rows of the jobs, their summaries, and the index.
//
//  1. The locks of the jobs, minions and events that the facts touch are taken.
//  2. Each fact is merged with what is stored. Only the rows that it needs are read.
//  3. The batch goes into pebble's log and memtable: readers see it, and the locks are freed.
//  4. The caller waits for the fsync of the log. One fsync acknowledges all who wait for it.
//
// A merge that finds everything there already waits for an fsync too, that of an empty record: the
// facts that it found may have been visible before they were durable.
//
// A failed fsync, of any file, is final: see Options.OnFatal. Writes are refused with tiers.ErrFull
// before the disk is full, and compactions may not use the last of it, so that the log can always
// be written and the store is never damaged.
//
// # Keys
//
// A class is how long a job is kept; a place is class and time of a job, 8 bytes each, big-endian.
// Strings that something follows are escaped (keys.go). Values are in job's envelope.
//
//	V                                   format version, decimal
//	C class                             a class that may have jobs
//	L jid                               place of the job
//	S place jid                         summary: header and counts
//	D place jid E|L|N                   end time, load, mark of nocache
//	D place jid P minion                a minion that the job was sent to
//	D place jid R minion                a return
//	I class day f|t|u|s|m value time jid  a job by function, target, user, state, minion
//	M minion                            last function of a minion
//	F fun minion                        a minion by its last function
//	E event id, master                  an event; its id begins with its time
//	T bucket tag, event id, master      an event by its tag, in buckets of ten minutes
//	R master                            registers
//
// A list of jobs walks S backwards in every class at once. It never touches D, unless it is asked
// for loads. A filter by a plain value walks I, day by day; what it finds is checked against the
// summary, so I may name jobs that are gone.
//
// The job's rows are one run of keys in the order head, returns. A return is one row, so a job of
// 60,000 minions is never rewritten; nor is its summary long.
//
// # Retention
//
// What has passed its time is, in every class, a range of S and of D up to now minus the class, and
// the days of I before. Expire removes them by range deletion, a thousand jobs at a time, together
// with their places, while no merge is under way. A job that a fact gives another retention moves to
// its new place within the batch of that fact.
package embedded
