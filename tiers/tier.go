// Package tiers holds the contract that every place of storage keeps, from the cache in the process
// to the durable store. The kinds are its children, one folder each; tiertest is the suite that
// each of them passes. It holds no behaviour of its own.
package tiers

import (
	"context"
	"time"

	"saltern/job"
)

// Tier is one place where jobs are kept. All methods are safe for concurrent use, honour the
// deadline of their context, and merge by the rules of package job, so facts may come in any order
// and more than once.
//
// Byte slices and pointers in arguments are the tier's to keep; those in answers are the caller's
// to keep. Neither side ever changes one.
type Tier interface {
	// Name is how the tier is called in logs, metrics and traces: a constant word.
	Name() string

	// Head gives all that the tier knows of a job but its returns. Three things might happen: the
	// tier has the job and gives its head; it does not, and the error is ErrNotFound (from a cache:
	// not held here; from a Store: there is no such job); or it could not tell, and the error says
	// why. A cache that knows that there is no such job says ErrAbsent.
	Head(ctx context.Context, jid job.JID) (job.Head, error)

	// Returns gives returns of a job in the order of their minions, a page at a time. A job without
	// returns is an empty page. Errors are as for Head; a cache that does not hold every return
	// of the job that its durable store has says ErrNotFound.
	Returns(ctx context.Context, jid job.JID, q ReturnQuery) (ReturnPage, error)

	// Merge merges facts into the tier, all of them or none, and says for each what became of it. A
	// Store has them durably when it answers. A cache merges facts only into jobs that it holds,
	// so that it never has a part of a job and takes it for the whole; for others the outcome is
	// Stored all the same.
	Merge(ctx context.Context, facts []job.Fact) ([]job.Outcome, error)

	// Close frees what the tier holds. No other call may follow or be under way.
	Close() error
}

// ReturnQuery selects returns of a job.
type ReturnQuery struct {
	// After asks for minions greater than it: the Next of the page before.
	After job.Minion
	// Only asks for these minions alone; nil for all.
	Only []job.Minion
	// MaxBytes ends the page once it has that many bytes of payload; 0 means no limit. A page has
	// at least one return, if there is one.
	MaxBytes int
	// NoPayload asks for headers alone: Ret, Rest and Times are then nil, or not, as suits the tier.
	NoPayload bool
}

// ReturnPage is a part of a job's returns.
type ReturnPage struct {
	// Returns are sorted by minion.
	Returns []job.Return
	// Next is what to ask After for the rest, empty when there is none.
	Next job.Minion
}

// Snapshot is what a cache is filled with: a job as its durable store has it.
type Snapshot struct {
	Head job.Head
	// Returns are all returns of the job, sorted by minion; meaningful only with HasReturns.
	Returns    []job.Return
	HasReturns bool
	// Absent says that there is no such job (only Head.JID is set). A cache keeps that for at most
	// TTL, and forgets it with any fact of the job.
	Absent bool
	// TTL is how long the cache may keep it; 0 for as long as it likes.
	TTL time.Duration
	// Fresh is how long the cache may answer with it; 0 for as long as it keeps it. A StaleReader
	// keeps it for longer, and is given what is below 0 too: never. Others make Fresh their TTL.
	Fresh time.Duration
	// Lease is the lease that the cache gave with its miss, where it gave one.
	Lease string
}

// Filler is a cache: a tier that can be filled from the tiers below it.
type Filler interface {
	// Fill merges a snapshot into the tier. The caller sees to it that no fact is lost between its
	// reading and its filling (see proxy's fills). A cache may decline silently.
	Fill(ctx context.Context, s Snapshot) error
	// Evict forgets a job.
	Evict(ctx context.Context, jid job.JID) error
}

// StaleReader is a cache that keeps what it may no longer answer with, for when nobody else answers:
// all that was merged into it is in it, and what others wrote may not be.
type StaleReader interface {
	// StaleHead is Head whatever Snapshot.Fresh was.
	StaleHead(ctx context.Context, jid job.JID) (job.Head, error)
	// StaleReturns is Returns whatever Snapshot.Fresh was.
	StaleReturns(ctx context.Context, jid job.JID, q ReturnQuery) (ReturnPage, error)
	// Doubt ends the time in which a job may be answered with otherwise: others wrote to it.
	Doubt(jid job.JID)
	// DoubtAll does so with all that is held.
	DoubtAll()
}

// Forgetter is a cache that can forget everything at once, for all who share it.
type Forgetter interface {
	// ForgetAll makes all that the cache holds unreadable, durably, before it returns.
	ForgetAll(ctx context.Context) error
}

// Reserver is a tier that can say of a jid, once, that nobody else has it.
type Reserver interface {
	// Reserve says whether the jid is the caller's: true for the first of all callers that share the
	// tier, for a day.
	Reserve(ctx context.Context, jid job.JID) (bool, error)
}

// Store is a durable tier: the last one of a cascade, the one whose "not found" is the truth, and
// the only one that is asked for lists.
type Store interface {
	Tier
	Lister
	EventReader
	MinionReader
	Retainer
	RegisterKeeper
}

// Lister lists jobs, newest first.
type Lister interface {
	// List gives a page of jobs that pass the filter.
	List(ctx context.Context, f Filter) (ListPage, error)
}

// Filter selects jobs. The zero value selects all. Fields that hold patterns take *, ? and [...]
// as Python's fnmatch does, and match whole values.
type Filter struct {
	// Fun, Target and User are patterns; User and Master without any wildcard are plain values.
	Fun    string
	Target string
	User   string
	Master string
	// NotFun are patterns of functions to leave out.
	NotFun []string
	// Minion asks for jobs that this minion was sent or has returned. No pattern.
	Minion job.Minion
	// State asks for jobs in this state.
	State job.State
	// From and To bound the time of the job, From included, To not. Zero means no bound.
	From, To time.Time
	// Cursor is the Next of the page before.
	Cursor string
	// Limit is the largest number of jobs in the page; 0 takes the tier's default of 100.
	Limit int
	// Loads asks for the loads too.
	Loads bool
}

// ListPage is a part of a list of jobs.
type ListPage struct {
	Jobs []Listed
	// Next is the cursor of the next page, empty when there is none. A page may be short, even
	// empty, and still have a Next: a tier bounds the work of one call.
	Next string
	// Hidden is how many jobs NotFun left out.
	Hidden int
}

// Listed is one job of a list.
type Listed struct {
	job.Summary
	// Head is set when the filter asked for Loads.
	Head *job.Head
}

// EventReader reads events.
type EventReader interface {
	// Events gives a page of events, newest first (or oldest first, see EventQuery).
	Events(ctx context.Context, q EventQuery) (EventPage, error)
}

// EventQuery selects events.
type EventQuery struct {
	// Tag is a pattern as in Filter.
	Tag      string
	Master   string
	From, To time.Time
	Cursor   string
	Limit    int
	// Oldest asks for the oldest first.
	Oldest bool
}

// EventPage is a part of a list of events.
type EventPage struct {
	Events []job.Event
	Next   string
}

// MinionReader knows what each minion did last.
type MinionReader interface {
	// LastFunctions gives the minions, sorted, that have a return in the store, each with its last
	// function. A fun other than "" selects those whose last function it was.
	LastFunctions(ctx context.Context, fun string) ([]job.LastFunction, error)
}

// Retainer removes what has passed its time.
type Retainer interface {
	// Expire removes jobs and events that have passed their time at now and says how many jobs went
	// (a guess will do). It never touches a job that has not. It may run for long and beside any
	// other call; a second call while one runs returns at once.
	Expire(ctx context.Context, now time.Time) (int, error)
}

// RegisterKeeper keeps Thorium's registers: named values of one master, last write wins.
type RegisterKeeper interface {
	SaveRegister(ctx context.Context, master string, data []byte) error
	// LoadRegister gives ErrNotFound where there is none.
	LoadRegister(ctx context.Context, master string) ([]byte, error)
}
