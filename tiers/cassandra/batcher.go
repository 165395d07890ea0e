package cassandra

import (
	"context"
	"sync"
)

// limits bound one batch, and how many are under way.
type limits struct {
	items, bytes int
	// inFlight is of one key, all of all keys.
	inFlight, all int
}

// batcher joins what is to be done for one key (a partition) at the same time. The first item of a key goes at once;
// those that come while it is under way wait for it, and go together. So a lone item never waits, and the wait of the
// others is one round trip of those before them.
type batcher[T any] struct {
	ctx    context.Context
	limits limits
	do     func(ctx context.Context, items []T) error
	slots  chan struct{}

	mu     sync.Mutex // guards queues and what is in them
	queues map[string]*queue[T]
}

type queue[T any] struct {
	waiting  []*order[T]
	inFlight int
}

// order are items of one caller for one key.
type order[T any] struct {
	ctx   context.Context
	items []T
	bytes int
	done  chan error
}

func newBatcher[T any](ctx context.Context, l limits, do func(context.Context, []T) error) *batcher[T] {
	return &batcher[T]{ctx: ctx, limits: l, do: do, slots: make(chan struct{}, l.all), queues: make(map[string]*queue[T])}
}

// put hands over items of a key. The channel gives the error of the batch that they went with, or none ever if ctx ended
// before they went.
func (b *batcher[T]) put(ctx context.Context, key string, items []T, bytes int) <-chan error {
	o := &order[T]{ctx: ctx, items: items, bytes: bytes, done: make(chan error, 1)}
	b.mu.Lock()
	defer b.mu.Unlock()
	q := b.queues[key]
	if q == nil {
		q = &queue[T]{}
		b.queues[key] = q
	}
	q.waiting = append(q.waiting, o)
	if q.inFlight < b.limits.inFlight {
		q.inFlight++
		go b.run(key, q)
	}
	return o.done
}

// run sends batches of a key until nothing waits.
func (b *batcher[T]) run(key string, q *queue[T]) {
	for {
		b.slots <- struct{}{}
		batch := b.take(key, q)
		if batch == nil {
			<-b.slots
			return
		}
		b.send(batch)
		<-b.slots
	}
}

// take gives the next batch; nil ends the runner.
func (b *batcher[T]) take(key string, q *queue[T]) []*order[T] {
	b.mu.Lock()
	defer b.mu.Unlock()
	var batch []*order[T]
	items, bytes, n := 0, 0, 0
	for _, o := range q.waiting {
		if o.ctx.Err() != nil { // its caller has gone
			n++
			continue
		}
		if len(batch) > 0 && (items+len(o.items) > b.limits.items || bytes+o.bytes > b.limits.bytes) {
			break
		}
		batch = append(batch, o)
		items, bytes, n = items+len(o.items), bytes+o.bytes, n+1
	}
	clear(q.waiting[:n])
	q.waiting = q.waiting[n:]
	if batch == nil {
		if q.inFlight--; q.inFlight == 0 {
			delete(b.queues, key)
		}
	}
	return batch
}

func (b *batcher[T]) send(batch []*order[T]) {
	items := batch[0].items
	if len(batch) > 1 {
		items = make([]T, 0, b.limits.items)
		for _, o := range batch {
			items = append(items, o.items...)
		}
	}
	// The batch has many callers: none of them cancels it.
	err := b.do(b.ctx, items)
	for _, o := range batch {
		o.done <- err
	}
}
