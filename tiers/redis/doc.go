// Package redis is the cache that masters share, in a Redis 6.2 or later, a Valkey, or a cluster of them. It
// holds nothing that is not in a durable store too.
//
// A job is two hashes under its jid as hash tag, so that they are on one node of a cluster, and so that a head
// is read without its returns:
//
//	<prefix>:<namespace>:<generation>:{<jid>}h   c = layout, l = load, e = end time, n = nocache,
//	                                             m<digest> = a list of minions
//	                                             or a = layout alone: there is no such job
//	<prefix>:<namespace>:<generation>:{<jid>}r   \0 = layout and id of the fill, \0b = bytes of payload,
//	                                             <minion> = its return
//	<prefix>:<namespace>:<generation>:{<jid>}l   a lease, or "!": see below
//
// Only a Fill makes a hash, and it then has all that there is: facts are merged into a hash that is there, and
// no other. Redis may evict either of the two at any time, or both may be flushed; what is left is a miss or
// whole. Facts are merged by a script, by the rules of package job, so that order and repetition do not
// matter, whoever sends them.
//
// # Fills that race with writes
//
// A reader that misses gets a lease, reads the durable store, and fills with the lease. A fact that comes for
// the job in between finds nothing to be merged into; it takes the lease away, and the fill is declined. For
// the time of Options.Guard after such a fact no lease is given either: the fact's writer may be waiting for
// the durable store, whose readers do not see it yet. A fact that reaches the store later than that (out of a
// journal) has to be merged here again, or its job evicted, once the store has it.
//
// # Generations
//
// The key <prefix>:<namespace>:{generation} has a word that is a part of all others. Another word makes all of
// them unreadable at once. Each script compares it with the one that its caller knows; in a cluster, where it
// is on another node, it is read beside each read and after each write. It goes with a flush, too. As what was
// known of facts on their way goes with the old one, nothing is filled until the new one is as old as the guard.
//
// A Redis that starts from a file that it saved, and a replica that becomes the primary, may lack what was written
// last. Each new connection asks for the id of the server's run; one that nobody of the namespace has met makes a
// new generation, and the call that met it is made anew.
package redis
