package backplane

import (
	"context"
	"fmt"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"saltern/job"
)

// outbox has what is to be sent.
type outbox struct {
	wake chan struct{} // holds one token when there is something

	mu   sync.Mutex // guards the rest
	jobs map[job.JID]change
	lost bool // more was to be sent than is kept
}

// change is the latest fact of a job.
type change struct {
	kind    string
	version job.Version
}

func (o *outbox) init() {
	o.wake = make(chan struct{}, 1)
	o.jobs = make(map[job.JID]change)
}

func (o *outbox) add(facts []job.Fact) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, f := range facts {
		if _, is := f.(job.Event); is { // events are in no cache
			continue
		}
		if have, there := o.jobs[f.Job()]; !there || have.version < f.Stamp() {
			o.jobs[f.Job()] = change{f.Kind(), f.Stamp()}
		}
	}
	if len(o.jobs) > maxPending {
		clear(o.jobs)
		o.lost = true
	}
	if len(o.jobs) > 0 || o.lost {
		select {
		case o.wake <- struct{}{}:
		default:
		}
	}
}

// take gives some of what is to be sent, whether something was lost before it, and whether there is more.
func (o *outbox) take() (jobs map[job.JID]change, lost, more bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	jobs = make(map[job.JID]change, min(len(o.jobs), maxJobs))
	for jid, c := range o.jobs {
		if len(jobs) == maxJobs {
			break
		}
		jobs[jid] = c
		delete(o.jobs, jid)
	}
	lost, o.lost = o.lost, false
	return jobs, lost, len(o.jobs) > 0
}

// send sends entries, one after the other, until ctx ends.
func (b *Backplane) send(ctx context.Context) {
	beat := time.NewTicker(beatEvery)
	defer beat.Stop()
	var number uint64
	for ctx.Err() == nil {
		jobs, lost, more := b.outbox.take()
		if len(jobs) > 0 || lost {
			number++
		}
		if lost {
			number++ // the hole in the numbers is how others see it
		}
		if !b.sendEntry(ctx, number, jobs) {
			break
		}
		if more {
			continue
		}
		select {
		case <-ctx.Done():
		case <-b.outbox.wake:
		case <-beat.C:
		}
	}
	b.farewell(number)
}

// sendEntry sends one entry, as often as it takes, and says whether it could before ctx ended. Nobody minds an
// entry that comes twice.
func (b *Backplane) sendEntry(ctx context.Context, number uint64, jobs map[job.JID]change) bool {
	wait, ok := firstWait, true
	for ok {
		err := b.add(ctx, number, jobs, nil)
		if err == nil {
			return true
		}
		b.logHealth(err)
		wait, ok = pause(ctx, wait)
	}
	return false
}

// farewell sends what is left and that no more will come. If it cannot, others will notice the silence.
func (b *Backplane) farewell(number uint64) {
	jobs, lost, more := b.outbox.take()
	if lost || more {
		return
	}
	if len(jobs) > 0 {
		number++
	}
	_ = b.add(context.Background(), number, jobs, []any{fieldFarewell, ""})
}

// Fields of an entry. Beside these there is one for each job, a colon and the jid, with the kind of the latest
// fact and its version: for people who look, so far.
const (
	fieldOrigin   = "origin"
	fieldNumber   = "number"
	fieldSent     = "sent" // when, by the sender's own clock, for itself alone
	fieldFarewell = "farewell"
	jobPrefix     = ":"
)

func (b *Backplane) add(ctx context.Context, number uint64, jobs map[job.JID]change, more []any) error {
	values := make([]any, 0, 6+2*len(jobs)+len(more))
	values = append(values, fieldOrigin, b.name, fieldNumber, number, fieldSent, int64(time.Since(b.start)))
	for jid, c := range jobs {
		values = append(values, jobPrefix+string(jid), fmt.Sprintf("%s %d", c.kind, c.version))
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerWithin)
	defer cancel()
	err := b.o.Client.XAdd(ctx, &goredis.XAddArgs{
		Stream: b.o.Key, MaxLen: b.o.MaxLen, Approx: true, Values: append(values, more...),
	}).Err()
	if err == nil {
		b.published.Add(1)
	}
	return err
}
