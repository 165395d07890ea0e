package cassandra

import (
	"context"
	"fmt"
	"time"

	"github.com/tinylib/msgp/msgp"

	"saltern/job"
	"saltern/tiers"
)

// A list shows of each job a summary: who was asked, who has answered, who failed. While a job changes, a list counts
// its rows (headers alone, never payloads); a job at rest is counted once, and the summary kept in its row of the list.
//
// What tells rest from change is the mark "changed" in that row. Whoever writes a fact sets it, before it is
// acknowledged, unless this process has done so within markEvery. A summary that was counted at time t holds while
// t is restAfter or more after the mark: a fact that came later than the count was written by a process that marked
// the row at most markEvery before it, so after t - restAfter. What is left is room for the clocks of the processes to
// differ: restAfter - markEvery, 30 s.
const (
	markEvery = 30 * time.Second
	restAfter = 60 * time.Second
)

// storedSummary is a summary as a row has it.
type storedSummary struct {
	job.Summary
	// counted is when.
	counted time.Time
}

// holds says whether a summary is as good as a new one for a row that was last marked at changed.
func (s storedSummary) holds(changed time.Time) bool { return s.counted.Sub(changed) >= restAfter }

const (
	summaryFields = 14
	// maxText bounds the texts of a stored summary: the target of a job can be a list of 60,000 minions.
	maxText = 8 << 10
)

// fitsRow says whether a summary is small enough to be kept in a row.
func fitsRow(s job.Summary) bool {
	return len(s.Fun) <= maxText && len(s.Target) <= maxText && len(s.User) <= maxText && len(s.Master) <= maxText
}

// encodeSummary writes a summary. Fields are only ever appended.
func encodeSummary(s job.Summary, counted time.Time) []byte {
	b := msgp.AppendArrayHeader(nil, summaryFields)
	b = msgp.AppendInt64(b, counted.UnixMicro())
	b = msgp.AppendInt64(b, s.Time.UnixMicro())
	b = msgp.AppendInt64(b, s.Last.UnixMicro())
	for _, text := range []string{s.Fun, s.Target, s.TargetType, s.User, s.Master} {
		b = msgp.AppendString(b, text)
	}
	for _, n := range []int64{int64(s.Keep), int64(s.Expected), int64(s.Missing), int64(s.Returned), int64(s.Failed), 0} {
		b = msgp.AppendInt64(b, n)
	}
	return job.Seal(0, b)
}

func decodeSummary(jid job.JID, value []byte) (storedSummary, error) {
	var s storedSummary
	_, b, err := job.Open(value)
	if err != nil {
		return s, err
	}
	n, b, err := msgp.ReadArrayHeaderBytes(b)
	if err != nil || n < summaryFields {
		return s, fmt.Errorf("%w: summary of %d fields", job.ErrCorrupt, n)
	}
	s.JID = jid
	var counted, at, last, keep, expected, missing, returned, failed int64
	ints := func(into ...*int64) {
		for _, i := range into {
			if err == nil {
				*i, b, err = msgp.ReadInt64Bytes(b)
			}
		}
	}
	ints(&counted, &at, &last)
	for _, text := range []*string{&s.Fun, &s.Target, &s.TargetType, &s.User, &s.Master} {
		if err == nil {
			*text, b, err = msgp.ReadStringBytes(b)
		}
	}
	ints(&keep, &expected, &missing, &returned, &failed)
	if err != nil {
		return s, fmt.Errorf("%w: %w", job.ErrCorrupt, err)
	}
	s.counted, s.Time, s.Last = time.UnixMicro(counted).UTC(), time.UnixMicro(at).UTC(), time.UnixMicro(last).UTC()
	s.Keep, s.Expected, s.Missing = job.Keep(keep), int(expected), int(missing)
	s.Returned, s.Failed = int(returned), int(failed)
	return s, nil
}

// count makes the summary of a job from its rows. It is not found where nothing is left of the job.
func (s *Store) count(ctx context.Context, jid job.JID) (job.Summary, error) {
	rows, err := s.headRows(ctx, jid)
	if err != nil {
		return job.Summary{}, err
	}
	if len(rows) == 0 {
		return job.Summary{}, notFound(jid)
	}
	h, err := s.head(ctx, jid, rows, false)
	if err != nil {
		return job.Summary{}, err
	}
	c := &counting{sum: job.Summary{JID: jid, Time: birthOf(rows), Expected: len(h.Minions), Keep: job.KeepUnset}}
	c.head(h, rows)
	expected := make(map[job.Minion]bool, len(h.Minions))
	for _, m := range h.Minions {
		expected[m] = true
	}
	r, err := s.openReturns(ctx, jid, tiers.ReturnQuery{NoPayload: true})
	if err != nil {
		return job.Summary{}, err
	}
	defer r.close()
	c.sum.Missing = c.sum.Expected
	for {
		row, err := r.next(ctx)
		if err != nil {
			return job.Summary{}, err
		}
		if row == nil {
			return c.done(s), nil
		}
		if f, _, ok := r.decode(row); ok {
			c.ret(f, expected[f.Minion])
		}
	}
}

// counting is a summary in the making.
type counting struct {
	sum  job.Summary
	load bool
	last job.Version
	// keep is the longest that a fact named, for a job whose load names none.
	keep job.Keep
	// texts of the returns, for a job without a load: the least one, whatever their order.
	fun, master string
}

func (c *counting) head(h job.Head, rows []headRow) {
	c.keep = job.KeepUnset
	if l := h.Load; l != nil {
		c.load = true
		c.sum.Fun, c.sum.Target, c.sum.TargetType = l.Fun, l.Target, l.TargetType
		c.sum.User, c.sum.Master, c.sum.Keep = l.User, l.Master, l.Keep
		c.saw(l.Version, l.Keep)
	}
	if h.EndTime != nil {
		c.saw(h.EndTime.Version, h.EndTime.Keep)
	}
	if h.NoCache != nil {
		c.saw(h.NoCache.Version, h.NoCache.Keep)
	}
	for _, r := range rows {
		if r.kind != headMinions {
			continue
		}
		f, _ := job.Decode(r.data) // one in chunks is not worth fetching again
		if m, ok := f.(job.Minions); ok {
			c.saw(m.Version, m.Keep)
		}
	}
}

func (c *counting) saw(v job.Version, keep job.Keep) {
	c.last, c.keep = max(c.last, v), job.LongerKeep(c.keep, keep)
}

func (c *counting) ret(f job.Return, expected bool) {
	c.sum.Returned++
	if expected {
		c.sum.Missing--
	}
	if f.Failed {
		c.sum.Failed++
	}
	if !c.load {
		c.fun, c.master = least(c.fun, f.Fun), least(c.master, f.Master)
	}
	c.saw(f.Version, f.Keep)
}

func least(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return min(a, b)
}

func (c *counting) done(s *Store) job.Summary {
	sum := c.sum
	if !c.load {
		sum.Fun, sum.Master = c.fun, c.master
	}
	if sum.Keep < 0 {
		sum.Keep = c.keep
	}
	if sum.Keep < 0 {
		sum.Keep = job.Keep(s.o.DefaultKeep / time.Second)
	}
	sum.Last = c.last.Time()
	if sum.Time.IsZero() {
		sum.Time = sum.JID.PlausibleTime(sum.Last)
	}
	return sum
}
