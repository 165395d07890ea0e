package embedded_test

import (
	"bytes"
	"cmp"
	"reflect"
	"slices"
	"time"

	"saltern/job"
	"saltern/tiers"
)

// model is what a store has to behave like: maps, and every answer found by looking at all of them.
type model struct {
	now         func() time.Time
	defaultKeep time.Duration
	eventKeep   time.Duration
	jobs        map[job.JID]*modelJob
	events      map[modelEvent]job.Event
	lasts       map[job.Minion]job.LastFunction
}

type modelEvent struct {
	id     job.EventID
	master string
}

type modelJob struct {
	head       job.Head
	time, last time.Time
	keep       job.Keep // the longest that any fact said
	fun        string   // the least that any return said; the next too
	master     string
	returns    map[job.Minion]job.Return
}

func newModel(now func() time.Time, defaultKeep, eventKeep time.Duration) *model {
	return &model{
		now: now, defaultKeep: defaultKeep, eventKeep: eventKeep,
		jobs:   make(map[job.JID]*modelJob),
		events: make(map[modelEvent]job.Event),
		lasts:  make(map[job.Minion]job.LastFunction),
	}
}

func (m *model) merge(facts []job.Fact) []job.Outcome {
	outcomes := make([]job.Outcome, len(facts))
	for _, marks := range []bool{true, false} {
		for i, f := range facts {
			if _, isMark := f.(job.NoCache); isMark == marks {
				outcomes[i] = m.mergeFact(f)
			}
		}
	}
	return outcomes
}

func (m *model) mergeFact(f job.Fact) job.Outcome {
	if e, ok := f.(job.Event); ok {
		key := modelEvent{e.ID, e.Master}
		old, found := m.events[key]
		if !found {
			m.events[key] = e
			return job.Stored
		}
		m.events[key] = job.MergeEvent(old, e)
		return job.Repeat
	}
	j := m.jobs[f.Job()]
	isNew := j == nil
	if isNew {
		j = &modelJob{
			head: job.Head{JID: f.Job()}, time: f.Job().PlausibleTime(m.now()), keep: job.KeepUnset,
			returns: make(map[job.Minion]job.Return),
		}
		m.jobs[f.Job()] = j
	}
	outcome := m.mergeInto(j, f)
	if isNew && outcome == job.Repeat {
		outcome = job.Stored // an empty list of minions is the job's first fact all the same
	}
	if outcome == job.Stored {
		if at := m.cameAt(f); at.After(j.last) {
			j.last = at
		}
		if isNew {
			outcome = job.Created
		}
	}
	return outcome
}

func (m *model) mergeInto(j *modelJob, f job.Fact) job.Outcome {
	r, isReturn := f.(job.Return)
	if isReturn && j.head.NoCache != nil {
		return job.Dropped
	}
	j.keep = longest(j.keep, reflect.ValueOf(f).FieldByName("Keep").Interface().(job.Keep))
	if isReturn {
		if len(j.returns) == 0 {
			j.fun, j.master = r.Fun, r.Master
		}
		j.fun, j.master = min(j.fun, r.Fun), min(j.master, r.Master)
		return m.mergeReturn(j, r)
	}
	before := j.head
	j.head = before.With(f)
	if !reflect.DeepEqual(before, j.head) {
		return job.Stored
	}
	switch f := f.(type) {
	case job.Minions:
		return job.Repeat
	case job.Load:
		return repeatIf(reflect.DeepEqual(*before.Load, f))
	case job.EndTime:
		return repeatIf(*before.EndTime == f)
	default:
		return repeatIf(*before.NoCache == f.(job.NoCache))
	}
}

func repeatIf(same bool) job.Outcome {
	if same {
		return job.Repeat
	}
	return job.Stored
}

func (m *model) mergeReturn(j *modelJob, r job.Return) job.Outcome {
	old, found := j.returns[r.Minion]
	if !found {
		m.setReturn(j, r)
		return job.Stored
	}
	winner, differ := job.MergeReturn(old, r)
	changed := !bytes.Equal(job.Encode(winner), job.Encode(old))
	if changed {
		m.setReturn(j, r)
	}
	switch {
	case !differ:
		return job.Repeat
	case changed:
		return job.Stored
	default:
		return job.Differs
	}
}

func (m *model) setReturn(j *modelJob, r job.Return) {
	j.returns[r.Minion] = r
	last := job.LastFunction{
		Minion: r.Minion, Fun: r.Fun, JID: r.JID, JobTime: j.time, Version: r.Version, Failed: r.Failed,
		Seen: m.cameAt(r),
	}
	if old, found := m.lasts[r.Minion]; found {
		last = job.MergeLastFunction(old, last)
	}
	m.lasts[r.Minion] = last
}

func longest(a, b job.Keep) job.Keep {
	rank := func(k job.Keep) int64 {
		if k == job.KeepForever {
			return 1 << 62
		}
		return int64(k)
	}
	if rank(a) > rank(b) {
		return a
	}
	return b
}

func (m *model) summary(j *modelJob) job.Summary {
	s := job.Summary{
		JID: j.head.JID, Time: j.time, Keep: j.keep, Last: j.last, Expected: len(j.head.Minions),
		Returned: len(j.returns),
	}
	for _, id := range j.head.Minions {
		if _, found := j.returns[id]; !found {
			s.Missing++
		}
	}
	for _, r := range j.returns {
		if r.Failed {
			s.Failed++
		}
	}
	if l := j.head.Load; l != nil {
		s.Fun, s.Target, s.TargetType, s.User, s.Master = l.Fun, l.Target, l.TargetType, l.User, l.Master
		if l.Keep >= 0 {
			s.Keep = l.Keep
		}
	} else {
		s.Fun, s.Master = j.fun, j.master
	}
	if s.Keep < 0 {
		s.Keep = job.Keep(m.defaultKeep / time.Second)
	}
	return s
}

// list gives all jobs that pass, newest first, and how many NotFun left out.
func (m *model) list(f tiers.Filter) (jobs []job.Summary, hidden int) {
	for _, j := range m.jobs {
		s := m.summary(j)
		_, returned := j.returns[f.Minion]
		passes := matchesField(f.Fun, s.Fun) && matchesField(f.Target, s.Target) &&
			matchesField(f.User, s.User) && matchesField(f.Master, s.Master) &&
			(f.State == "" || f.State == s.State(m.now())) &&
			(f.Minion == "" || returned || slices.Contains(j.head.Minions, f.Minion)) &&
			(f.From.IsZero() || !s.Time.Before(f.From)) && (f.To.IsZero() || s.Time.Before(f.To))
		if !passes {
			continue
		}
		if slices.ContainsFunc(f.NotFun, func(p string) bool { return tiers.Match(p, s.Fun) }) {
			hidden++
			continue
		}
		jobs = append(jobs, s)
	}
	slices.SortFunc(jobs, func(a, b job.Summary) int {
		return cmp.Or(b.Time.Compare(a.Time), cmp.Compare(b.JID, a.JID))
	})
	return jobs, hidden
}

func matchesField(pattern, value string) bool {
	return pattern == "" || tiers.Match(pattern, value)
}

func (m *model) listEvents(q tiers.EventQuery) []job.Event {
	var found []job.Event
	for _, e := range m.events {
		at := e.ID.Time()
		if matchesField(q.Tag, e.Tag) && matchesField(q.Master, e.Master) &&
			(q.From.IsZero() || !at.Before(q.From)) && (q.To.IsZero() || at.Before(q.To)) {
			found = append(found, e)
		}
	}
	slices.SortFunc(found, func(a, b job.Event) int {
		c := cmp.Or(bytes.Compare(b.ID[:], a.ID[:]), cmp.Compare(b.Master, a.Master))
		if q.Oldest {
			return -c
		}
		return c
	})
	return found
}

func (m *model) lastFunctions(fun string) []job.LastFunction {
	var all []job.LastFunction
	for _, l := range m.lasts {
		if fun == "" || l.Fun == fun {
			all = append(all, l)
		}
	}
	slices.SortFunc(all, func(a, b job.LastFunction) int { return cmp.Compare(a.Minion, b.Minion) })
	return all
}

func (m *model) expire() (gone int) {
	now := m.now()
	for jid, j := range m.jobs {
		keep := m.summary(j).Keep
		if keep != job.KeepForever && j.time.Before(now.Add(-time.Duration(keep)*time.Second)) {
			delete(m.jobs, jid)
			gone++
		}
	}
	for key, e := range m.events {
		if e.ID.Time().Before(now.Add(-m.eventKeep)) {
			delete(m.events, key)
		}
	}
	for id, l := range m.lasts {
		if m.jobs[l.JID] == nil {
			m.lastOfJobs(id, l.Seen)
		}
	}
	return gone
}

// cameAt is when a fact came: its version says so, never later than now.
func (m *model) cameAt(f job.Fact) time.Time {
	if v := f.Stamp(); v != 0 && v.Time().Before(m.now()) {
		return v.Time()
	}
	return m.now()
}

// lastOfJobs makes the last function of a minion from the jobs that are left.
func (m *model) lastOfJobs(id job.Minion, seen time.Time) {
	delete(m.lasts, id)
	for jid, j := range m.jobs {
		r, found := j.returns[id]
		if !found {
			continue
		}
		last := job.LastFunction{
			Minion: id, Fun: r.Fun, JID: jid, JobTime: j.time, Version: r.Version, Failed: r.Failed,
			Seen: seen,
		}
		if old, found := m.lasts[id]; found {
			last = job.MergeLastFunction(old, last)
		}
		m.lasts[id] = last
	}
}
