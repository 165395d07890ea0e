package backplane

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"saltern/job"
)

// inbox is what is known of the stream. Only the loop that receives touches it.
type inbox struct {
	cursor  string // id of the last entry that was read; empty before the first read
	origins map[string]*origin
}

// origin is another sender.
type origin struct {
	number uint64 // of its last entry
	seen   time.Time
}

// receive reads the stream until ctx ends.
func (b *Backplane) receive(ctx context.Context) {
	wait, ok := firstWait, true
	for ok && ctx.Err() == nil {
		err := b.readSome(ctx)
		b.logHealth(err)
		if err == nil {
			wait = firstWait
			continue
		}
		wait, ok = pause(ctx, wait)
	}
}

// readSome reads what there is, or waits for something for a moment.
func (b *Backplane) readSome(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), blockFor+answerWithin)
	defer cancel()
	if b.inbox.cursor == "" {
		last, err := b.lastID(ctx)
		if err != nil {
			return err
		}
		b.inbox.cursor = last
		b.gap("reading begins")
	}
	streams, err := b.o.Client.XRead(ctx, &goredis.XReadArgs{
		Streams: []string{b.o.Key, b.inbox.cursor}, Count: readAtOnce, Block: blockFor,
	}).Result()
	if errors.Is(err, goredis.Nil) {
		return b.checkCursor(ctx)
	}
	if err != nil {
		return err
	}
	for _, s := range streams {
		for _, m := range s.Messages {
			b.read(m)
			b.inbox.cursor = m.ID
		}
	}
	b.bury()
	return nil
}

// lastID is the id of the last entry, "0-0" where there is none.
func (b *Backplane) lastID(ctx context.Context) (string, error) {
	last, err := b.o.Client.XRevRangeN(ctx, b.o.Key, "+", "-", 1).Result()
	if err != nil || len(last) == 0 {
		return "0-0", err
	}
	return last[0].ID, nil
}

// checkCursor is for when nothing comes, not even what we send ourselves: a stream that began anew on a server
// whose clock is behind has ids that the cursor has passed.
func (b *Backplane) checkCursor(ctx context.Context) error {
	if b.Healthy() {
		return nil
	}
	last, err := b.lastID(ctx)
	if err != nil {
		return err
	}
	if compareIDs(last, b.inbox.cursor) < 0 {
		b.gap("the stream began anew")
		b.inbox.cursor = last
	}
	return nil
}

// read takes one entry.
func (b *Backplane) read(m goredis.XMessage) {
	name, _ := m.Values[fieldOrigin].(string)
	number, err := strconv.ParseUint(text(m, fieldNumber), 10, 64)
	if name == "" || err != nil {
		b.malformed.Add(1)
		b.gap("an entry that cannot be read")
		return
	}
	if name == b.name {
		if sent, err := strconv.ParseInt(text(m, fieldSent), 10, 64); err == nil {
			b.seenSent.Store(sent)
		}
		return
	}
	b.received.Add(1)
	b.follow(name, number, m)
}

// follow takes an entry of another proxy.
func (b *Backplane) follow(name string, number uint64, m goredis.XMessage) {
	from, known := b.inbox.origins[name]
	if _, bye := m.Values[fieldFarewell]; bye {
		delete(b.inbox.origins, name)
	} else {
		last := number
		if known {
			// An entry that Redis took late may come after its repetition.
			last = max(last, from.number)
		}
		b.inbox.origins[name] = &origin{number: last, seen: time.Now()}
	}
	jobs := 0
	for field := range m.Values {
		jid, is := strings.CutPrefix(field, jobPrefix)
		if !is {
			continue
		}
		jobs++
		b.evicted.Add(1)
		b.o.Evict(job.JID(jid))
	}
	switch {
	case !known:
		b.gap("a proxy is new: " + name)
	case number > from.number+1, jobs == 0 && number > from.number:
		b.gap("entries are missing of " + name)
	}
}

// bury takes those that have said nothing for long, and no farewell, for dead.
func (b *Backplane) bury() {
	for name, from := range b.inbox.origins {
		if time.Since(from.seen) > silentAfter {
			delete(b.inbox.origins, name)
			b.gap("a proxy has gone silent: " + name)
		}
	}
}

// gap says that something was missed.
func (b *Backplane) gap(why string) {
	b.gaps.Add(1)
	b.o.Logger.Info("the backplane has a gap: running jobs are read from the store again", "why", why)
	b.o.Gap()
}

func text(m goredis.XMessage, field string) string {
	s, _ := m.Values[field].(string)
	return s
}

// compareIDs compares two ids of entries, each milliseconds and a number.
func compareIDs(a, b string) int {
	aTime, aNumber := cutID(a)
	bTime, bNumber := cutID(b)
	return cmp.Or(cmp.Compare(aTime, bTime), cmp.Compare(aNumber, bNumber))
}

func cutID(id string) (milliseconds, number uint64) {
	left, right, _ := strings.Cut(id, "-")
	milliseconds, _ = strconv.ParseUint(left, 10, 64) // Redis made it
	number, _ = strconv.ParseUint(right, 10, 64)
	return milliseconds, number
}
