package redis

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"saltern/job"
	"saltern/tiers"
)

const (
	// smallJob is the payload of returns that is read in one go, however small the page.
	smallJob = 64 << 10
	// mostFields is how many returns are asked for at once.
	mostFields = 4000
)

// Returns gives returns of a job that is held with all of them. A page of all returns takes one round trip
// where the job is about as small as the page, or its names are known; else two.
func (t *Tier) Returns(ctx context.Context, jid job.JID, q tiers.ReturnQuery) (tiers.ReturnPage, error) {
	page, err := t.returns(ctx, jid, q)
	if err != nil {
		return tiers.ReturnPage{}, err
	}
	t.counts.hits.Add(1)
	return page, nil
}

func (t *Tier) returns(ctx context.Context, jid job.JID, q tiers.ReturnQuery) (tiers.ReturnPage, error) {
	if q.Only != nil {
		return t.some(ctx, jid, job.UnionMinions(q.Only), "", 0, q)
	}
	if names, ok := t.names.get(jid); ok && q.MaxBytes > 0 {
		return t.some(ctx, jid, names.minions, names.stamp, names.average, q)
	}
	return t.all(ctx, jid, q)
}

// all reads the job as a whole, or, where it is large for the page, the names of its minions and then some.
func (t *Tier) all(ctx context.Context, jid job.JID, q tiers.ReturnQuery) (tiers.ReturnPage, error) {
	most := int64(t.o.MaxJob) * 2 // more than is ever held
	if q.MaxBytes > 0 {
		most = int64(max(q.MaxBytes, smallJob))
	}
	a, err := t.readReturns(ctx, jid, "all", most)
	if err != nil {
		return tiers.ReturnPage{}, err
	}
	if a.kind == "names" {
		return t.named(ctx, jid, a, q)
	}
	fields := a.strings(0)
	returns := make([]job.Return, 0, len(fields)/2)
	for i := 0; i+1 < len(fields); i += 2 {
		minion, is := minionOf(*fields[i])
		if !is || minion <= q.After && q.After != "" {
			continue
		}
		r, err := openReturn(*fields[i+1], jid, minion)
		if err != nil {
			return tiers.ReturnPage{}, t.corrupt(ctx, jid, err)
		}
		returns = append(returns, r)
	}
	slices.SortFunc(returns, func(a, b job.Return) int { return strings.Compare(string(a.Minion), string(b.Minion)) })
	p := pager{max: q.MaxBytes}
	for _, r := range returns {
		if !p.add(r) {
			break
		}
	}
	return p.page, nil
}

// named goes on with the names of a job's minions.
func (t *Tier) named(ctx context.Context, jid job.JID, a answer, q tiers.ReturnQuery) (tiers.ReturnPage, error) {
	fields := a.strings(0)
	n := names{stamp: a.text(1), minions: make([]job.Minion, 0, len(fields))}
	for _, f := range fields {
		if m, is := minionOf(*f); is {
			n.minions = append(n.minions, m)
		}
	}
	slices.Sort(n.minions)
	n.average = int(a.number(2)) / max(1, len(n.minions))
	t.names.put(jid, n)
	return t.some(ctx, jid, n.minions, n.stamp, n.average, q)
}

// some reads the returns of those of the minions, sorted, that are after q.After. With a stamp they are all that
// the job has; should it have more by now, the query starts anew. average is about the payload of a return, 0
// where it is not known.
func (t *Tier) some(
	ctx context.Context, jid job.JID, minions []job.Minion, stamp string, average int, q tiers.ReturnQuery,
) (tiers.ReturnPage, error) {
	if q.After != "" {
		i, found := slices.BinarySearch(minions, q.After)
		if found {
			i++
		}
		minions = minions[i:]
	}
	p := pager{max: q.MaxBytes}
	for {
		n := min(len(minions), p.wanted(average))
		args := append(make([]any, 0, n+2), "some", stamp)
		for _, m := range minions[:n] {
			args = append(args, minionField(m))
		}
		a, err := t.readReturns(ctx, jid, args...)
		if err != nil {
			return tiers.ReturnPage{}, err
		}
		if a.kind == "names" {
			return t.named(ctx, jid, a, q)
		}
		values := a.strings(0)
		if len(values) != n {
			return tiers.ReturnPage{}, t.fail(ctx, "returns", errAnswer)
		}
		for i, value := range values {
			if value == nil {
				continue
			}
			r, err := openReturn(*value, jid, minions[i])
			if err != nil {
				return tiers.ReturnPage{}, t.corrupt(ctx, jid, err)
			}
			if !p.add(r) {
				return p.page, nil
			}
		}
		if minions = minions[n:]; len(minions) == 0 {
			return p.page, nil
		}
	}
}

// readReturns runs the script, and gives an error for what is a miss.
func (t *Tier) readReturns(ctx context.Context, jid job.JID, args ...any) (answer, error) {
	lease := word()
	args = append([]any{lease, t.o.Lease.Milliseconds(), t.guard()}, args...)
	a, err := t.call(ctx, "returns", returnsScript, jid, args...)
	if err != nil {
		return answer{}, t.orForeign(ctx, jid, err)
	}
	switch a.kind {
	case "all", "some", "names":
		return a, nil
	case "foreign":
		return answer{}, t.corrupt(ctx, jid, fmt.Errorf("%w: not returns of this layout", job.ErrCorrupt))
	default:
		return answer{}, t.miss(a.kind, lease)
	}
}

func openReturn(value string, jid job.JID, m job.Minion) (job.Return, error) {
	r, err := openValue[job.Return](value, jid)
	if err == nil && r.Minion != m {
		err = fmt.Errorf("%w: a return of another minion", job.ErrCorrupt)
	}
	return r, err
}

// pager makes a page of returns that come in order.
type pager struct {
	page  tiers.ReturnPage
	max   int // bytes of payload; 0 for no limit
	bytes int
}

// add takes a return into the page and says whether it was still to be in it.
func (p *pager) add(r job.Return) bool {
	p.bytes += r.PayloadBytes()
	if n := len(p.page.Returns); p.max > 0 && p.bytes > p.max && n > 0 {
		p.page.Next = p.page.Returns[n-1].Minion
		return false
	}
	p.page.Returns = append(p.page.Returns, r)
	return true
}

// wanted is how many more returns of about that size to ask for.
func (p *pager) wanted(average int) int {
	if n := len(p.page.Returns); n > 0 {
		average = p.bytes / n
	}
	if p.max <= 0 || average <= 0 {
		return mostFields
	}
	return min(mostFields, (p.max-p.bytes)/average+2)
}
