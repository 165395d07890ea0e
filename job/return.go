package job

import (
	"bytes"
	"cmp"
)

// Return is what one minion sent back for a job. The payload comes in three parts, so that a repeat
// can be told from a different return without decoding either: every resend has new times.
type Return struct {
	JID     JID
	Minion  Minion
	Version Version
	Fun     string
	// Master is the id of the master that stored it; empty when a minion did.
	Master string
	Keep   Keep
	// RetCode and Success are nil where the minion sent none, or something that is no number or
	// truth value (a job of several functions sends maps); they are in Rest all the same.
	RetCode *int64
	Success *bool
	// Failed is true for a return code other than 0, a success of False, or a state run with a
	// state whose result is False.
	Failed bool
	// Surrogates: see Load.
	Surrogates bool
	// Ret is the packed value of `return`.
	Ret []byte
	// Rest is a packed map of all else that the minion sent, without the times.
	Rest []byte
	// Times is a packed map of `_stamp` and `ts`, those of them that there were.
	Times []byte
}

// PayloadBytes is the size of the three parts of the payload: what pages of returns are bounded by.
func (f Return) PayloadBytes() int { return len(f.Ret) + len(f.Rest) + len(f.Times) }

// Outcome is what a tier did with a fact.
type Outcome uint8

const (
	// Stored: the fact is in the tier, and as far as the tier knows it was not before.
	Stored Outcome = iota
	// Created: stored, and it is the very first fact of its job.
	Created
	// Repeat: an equal fact was there already.
	Repeat
	// Differs: another return of that minion was there first, and stays.
	Differs
	// Dropped: the job is marked nocache, so its returns are not kept.
	Dropped
)

var outcomeNames = [...]string{"stored", "created", "repeat", "differs", "dropped"}

// String is the word for the outcome on the wire and in logs.
func (o Outcome) String() string { return outcomeNames[o] }

// SameReturn says whether two returns of a minion for a job are the same one delivered twice: equal
// in return, retcode and success, whatever their times and cmd say.
func SameReturn(a, b Return) bool {
	return bytes.Equal(a.Ret, b.Ret) && equalPtr(a.RetCode, b.RetCode) && equalPtr(a.Success, b.Success)
}

func equalPtr[T comparable](a, b *T) bool {
	return (a == nil) == (b == nil) && (a == nil || *a == *b)
}

// MergeReturn gives the return that stays of two of one minion for one job, the first one as in
// local_cache, and whether they differed.
func MergeReturn(a, b Return) (winner Return, differ bool) {
	differ = !SameReturn(a, b)
	if compareReturns(a, b) <= 0 {
		return a, differ
	}
	return b, differ
}

func compareReturns(a, b Return) int {
	return cmp.Or(
		cmp.Compare(a.Version, b.Version),
		bytes.Compare(a.Ret, b.Ret),
		bytes.Compare(a.Rest, b.Rest),
		bytes.Compare(a.Times, b.Times),
		cmp.Compare(a.Keep, b.Keep),
		cmp.Compare(a.Master, b.Master),
		cmp.Compare(a.Fun, b.Fun),
		boolCompare(a.Failed, b.Failed),
		boolCompare(a.Surrogates, b.Surrogates),
		comparePtr(a.RetCode, b.RetCode),
		boolCompare(a.Success != nil && *a.Success, b.Success != nil && *b.Success),
		boolCompare(a.Success != nil, b.Success != nil),
	)
}

func comparePtr(a, b *int64) int {
	if a == nil || b == nil {
		return boolCompare(a != nil, b != nil)
	}
	return cmp.Compare(*a, *b)
}
