// Package job is the vocabulary of Saltern: job ids, versions, and the facts that are kept of a
// job, each with the rule by which two copies of it become one. It imports nothing else of the
// project and does no I/O.
//
// Every write is one of a few facts, and every fact has a merge rule that is commutative,
// associative and idempotent. A retry, a replay, a back-fill, a second master or a tier that was
// away can therefore never lose or regress data: whatever the order of arrival, and however often
// a fact arrives, the same facts give the same job.
//
//	fact           key            rule
//	Load           jid            higher rank, then higher version
//	Minions        jid            set union
//	Return         jid, minion    lower version: the first one wins
//	EndTime        jid            higher version
//	NoCache        jid            once set, stays
//	LastFunction   minion         later job, then higher version
//	Event          event id       set union
//
// Payloads are MessagePack as Salt wrote it. They are opaque here: nothing in this package decodes
// and encodes one again.
package job
