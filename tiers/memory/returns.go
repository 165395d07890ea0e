package memory

import (
	"cmp"
	"iter"
	"slices"

	"saltern/job"
	"saltern/tiers"
)

// returnSet holds the returns of a job in the order of their minions, in two sorted runs. New ones
// go into the short run, which is merged into the long one when it has some square roots of its
// length, so a return costs O(√n) moves of a pointer, and reading needs no sorting.
type returnSet struct {
	long, short []*job.Return
	bytes       int64
}

const (
	// shortest is the length to which the short run may always grow.
	shortest = 64
	// roots is to how many square roots of the long run: merging compares strings, which costs more
	// than moving pointers.
	roots = 4
)

// pointerSize is what a return takes in a run, with room to grow.
const pointerSize = 16

// merge merges a return into the set, which may keep it, and says what became of it.
func (s *returnSet) merge(r *job.Return) job.Outcome {
	run, i, found := s.find(r.Minion)
	if !found {
		s.insert(i, r)
		s.bytes += int64(r.Size()) + pointerSize
		return job.Stored
	}
	have := run[i]
	winner, differ := job.MergeReturn(*have, *r)
	run[i] = &winner
	s.bytes += int64(winner.Size()) - int64(have.Size())
	switch {
	case !differ:
		return job.Repeat
	case job.SameReturn(winner, *r):
		return job.Stored // it is the older one
	default:
		return job.Differs
	}
}

// find gives the run and index of a minion's return, or its place in the short run.
func (s *returnSet) find(m job.Minion) (run []*job.Return, i int, found bool) {
	if i, found = slices.BinarySearchFunc(s.long, m, compareMinion); found {
		return s.long, i, true
	}
	i, found = slices.BinarySearchFunc(s.short, m, compareMinion)
	return s.short, i, found
}

func compareMinion(r *job.Return, m job.Minion) int { return cmp.Compare(r.Minion, m) }

// insert puts a return at a place in the short run.
func (s *returnSet) insert(i int, r *job.Return) {
	if n := len(s.long); len(s.short) == 0 && (n == 0 || s.long[n-1].Minion < r.Minion) {
		s.long = append(s.long, r)
		return
	}
	s.short = slices.Insert(s.short, i, r)
	if n := len(s.short); n > shortest && n*n > roots*roots*len(s.long) {
		s.long = slices.AppendSeq(make([]*job.Return, 0, len(s.long)+n), s.after(""))
		s.short = s.short[:0]
		clear(s.short[:n])
	}
}

// after gives the returns of minions greater than m, in order.
func (s *returnSet) after(m job.Minion) iter.Seq[*job.Return] {
	return func(yield func(*job.Return) bool) {
		long, short := tail(s.long, m), tail(s.short, m)
		for len(long) > 0 || len(short) > 0 {
			from := &long
			if len(long) == 0 || len(short) > 0 && short[0].Minion < long[0].Minion {
				from = &short
			}
			if !yield((*from)[0]) {
				return
			}
			*from = (*from)[1:]
		}
	}
}

func tail(run []*job.Return, m job.Minion) []*job.Return {
	i, found := slices.BinarySearchFunc(run, m, compareMinion)
	if found {
		i++
	}
	return run[i:]
}

// only gives the returns of those of the minions that are greater than m, in order.
func (s *returnSet) only(minions []job.Minion, m job.Minion) iter.Seq[*job.Return] {
	return func(yield func(*job.Return) bool) {
		for _, id := range job.UnionMinions(minions) {
			if id <= m {
				continue
			}
			if run, i, found := s.find(id); found && !yield(run[i]) {
				return
			}
		}
	}
}

// page answers a query.
func (s *returnSet) page(q tiers.ReturnQuery) tiers.ReturnPage {
	var page tiers.ReturnPage
	all := s.after(q.After)
	switch {
	case q.Only != nil:
		all = s.only(q.Only, q.After)
	case q.MaxBytes <= 0:
		page.Returns = make([]job.Return, 0, len(s.long)+len(s.short))
	}
	bytes := 0
	for r := range all {
		bytes += r.PayloadBytes()
		if n := len(page.Returns); q.MaxBytes > 0 && bytes > q.MaxBytes && n > 0 {
			page.Next = page.Returns[n-1].Minion
			break
		}
		page.Returns = append(page.Returns, *r)
	}
	return page
}
