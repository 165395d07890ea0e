package server

import (
	"context"
	"net/http"
	"time"

	"saltern/job"
	"saltern/tiers"
)

// listJobs answers /v1/jobs. The store bounds the work of one call, so that a rare match can take
// several; they are made here, up to fillTime, so that a person seldom sees an empty page.
func (h *HTTP) listJobs(r *http.Request) (answer, error) {
	f, err := jobFilter(r)
	if err != nil {
		return answer{}, err
	}
	page, err := h.o.Jobs.List(r.Context(), f)
	if err != nil {
		return answer{}, err
	}
	limit, until := f.Limit, time.Now().Add(fillTime)
	for page.Next != "" && len(page.Jobs) < limit && time.Now().Before(until) {
		f.Cursor, f.Limit = page.Next, limit-len(page.Jobs)
		more, err := h.o.Jobs.List(r.Context(), f)
		if err != nil {
			break // what there is, is right; who asks for the next page gets the error
		}
		page.Jobs, page.Next = append(page.Jobs, more.Jobs...), more.Next
	}
	now := time.Now()
	return answer{next: nextAddress(r, "cursor", page.Next), body: func(j *jsonWriter) {
		j.begin('{')
		j.key("jobs")
		j.begin('[')
		for i := range page.Jobs {
			j.item()
			j.begin('{')
			j.summary(&page.Jobs[i].Summary, now)
			j.end('}')
		}
		j.end(']')
		j.next(page.Next)
		j.end('}')
	}}, nil
}

// fillTime is how long a list is filled up to its limit.
const fillTime = 500 * time.Millisecond

// summary writes the fields of a job as lists show it.
func (j *jsonWriter) summary(s *job.Summary, now time.Time) {
	j.field("jid", string(s.JID))
	j.key("time")
	j.time(s.Time)
	j.field("state", string(s.State(now)))
	j.field("fun", s.Fun)
	j.field("target", s.Target)
	j.field("target_type", s.TargetType)
	j.field("user", s.User)
	j.field("master", s.Master)
	j.counts(s)
	j.keep(s.Keep)
}

func (j *jsonWriter) counts(s *job.Summary) {
	for _, c := range []struct {
		key string
		n   int
	}{{"expected", s.Expected}, {"returned", s.Returned}, {"missing", s.Missing}, {"failed", s.Failed}} {
		j.key(c.key)
		j.int(int64(c.n))
	}
	j.key("last")
	j.time(s.Last)
}

// keep writes how many seconds a job is kept, 0 for ever, null for the daemon's default.
func (j *jsonWriter) keep(k job.Keep) {
	j.key("keep")
	if k == job.KeepUnset {
		j.raw("null")
		return
	}
	j.int(int64(k))
}

// next writes where the next page begins, null on the last page.
func (j *jsonWriter) next(cursor string) {
	j.key("next")
	if cursor == "" {
		j.raw("null")
		return
	}
	j.text(cursor)
}

// showJob answers /v1/jobs/{jid}: all that is known of a job, and the first of its returns.
func (h *HTTP) showJob(r *http.Request) (answer, error) {
	jid, page, err := h.returns(r)
	if err != nil {
		return answer{}, err
	}
	head, err := h.o.Jobs.Head(r.Context(), jid)
	if err != nil {
		return answer{}, err
	}
	sum := h.summaryOf(r.Context(), jid)
	now := time.Now()
	next := nextAddress(r, "after", afterOf(page.Next))
	return answer{next: next, body: func(j *jsonWriter) {
		j.begin('{')
		j.field("jid", string(jid))
		j.key("time")
		if sum != nil {
			j.time(sum.Time)
			j.field("state", string(sum.State(now)))
			j.counts(sum)
		} else {
			j.raw("null")
		}
		j.head(&head)
		j.returns(page)
		j.end('}')
	}}, nil
}

// summaryOf finds the counts of a job in the list of its microsecond; nil where that is not to be
// had cheaply: for a jid that carries no time. A person still sees the job then.
func (h *HTTP) summaryOf(ctx context.Context, jid job.JID) *job.Summary {
	at, ok := jid.Time()
	if !ok {
		return nil
	}
	f := tiers.Filter{From: at, To: at.Add(time.Microsecond), Limit: maxHTTPLimit}
	page, err := h.o.Jobs.List(ctx, f)
	if err != nil {
		return nil
	}
	for i := range page.Jobs {
		if page.Jobs[i].JID == jid {
			return &page.Jobs[i].Summary
		}
	}
	return nil
}

// head writes the fields of a job that are no counts.
func (j *jsonWriter) head(h *job.Head) {
	j.key("load")
	if l := h.Load; l != nil {
		j.begin('{')
		j.field("fun", l.Fun)
		j.field("target", l.Target)
		j.field("target_type", l.TargetType)
		j.field("user", l.User)
		j.field("master", l.Master)
		j.keep(l.Keep)
		j.key("stored")
		j.time(l.Version.Time())
		j.key("data")
		j.view(l.Payload)
		j.end('}')
	} else {
		j.raw("null")
	}
	j.key("minions")
	j.begin('[')
	for _, m := range h.Minions {
		j.item()
		j.text(string(m))
	}
	j.end(']')
	if h.EndTime != nil {
		j.field("end_time", h.EndTime.Text)
	}
	if h.NoCache != nil {
		j.key("nocache")
		j.bool(true)
	}
}

// showReturns answers /v1/jobs/{jid}/returns.
func (h *HTTP) showReturns(r *http.Request) (answer, error) {
	jid, page, err := h.returns(r)
	if err != nil {
		return answer{}, err
	}
	next := nextAddress(r, "after", afterOf(page.Next))
	return answer{next: next, body: func(j *jsonWriter) {
		j.begin('{')
		j.field("jid", string(jid))
		j.returns(page)
		j.end('}')
	}}, nil
}

// returns reads the page of returns that a request asks for. One page is about pageBytes of
// payload, so an answer takes bounded memory however many minions a job has.
func (h *HTTP) returns(r *http.Request) (job.JID, tiers.ReturnPage, error) {
	q := newQuery(r, "after")
	after := q.after()
	if err := q.done(); err != nil {
		return "", tiers.ReturnPage{}, err
	}
	jid, err := jidOf(r)
	if err != nil {
		return "", tiers.ReturnPage{}, err
	}
	page, err := h.o.Jobs.Returns(r.Context(), jid,
		tiers.ReturnQuery{After: after, MaxBytes: pageBytes})
	return jid, page, err
}

// returns writes the fields of a page.
func (j *jsonWriter) returns(p tiers.ReturnPage) {
	j.key("returns")
	j.begin('[')
	for i := range p.Returns {
		j.item()
		j.ret(&p.Returns[i])
	}
	j.end(']')
	j.next(afterOf(p.Next))
}

// ret writes a return: what Saltern knows of it, its result, and under "data" all else that the
// minion sent.
func (j *jsonWriter) ret(r *job.Return) {
	j.begin('{')
	j.field("minion", string(r.Minion))
	j.field("fun", r.Fun)
	j.field("master", r.Master)
	j.key("retcode")
	if r.RetCode != nil {
		j.int(*r.RetCode)
	} else {
		j.raw("null")
	}
	j.key("success")
	if r.Success != nil {
		j.bool(*r.Success)
	} else {
		j.raw("null")
	}
	j.key("failed")
	j.bool(r.Failed)
	j.key("stored")
	j.time(r.Version.Time())
	j.key("return")
	j.view(r.Ret)
	j.key("data")
	j.view(joinMaps(r.Rest, r.Times))
	j.end('}')
}
