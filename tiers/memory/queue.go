package memory

import "sync"

// queue holds entries in the order in which they came, under a bound of bytes. An entry that was
// read or written since it was last passed gets another round instead of leaving: nearly the hits of
// an LRU, without a lock for reads.
type queue struct {
	mu    sync.Mutex // guards the rest, and prev, next and queued of the entries in it
	root  entry      // root.next is the newest, root.prev the oldest
	len   int
	bytes int64
	max   int64
}

func (q *queue) init(max int64) {
	q.root.prev, q.root.next = &q.root, &q.root
	q.max = max
}

// add puts an entry of that cost in front.
func (q *queue) add(e *entry, cost int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	e.touch()
	e.queued = cost
	q.bytes += cost
	q.len++
	q.link(e)
}

// resize counts a new cost for an entry, if the queue has it.
func (q *queue) resize(e *entry, cost int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if e.next == nil {
		return
	}
	e.touch()
	q.bytes += cost - e.queued
	e.queued = cost
}

// remove takes an entry out, if the queue has it.
func (q *queue) remove(e *entry) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if e.next != nil {
		q.removeLocked(e)
	}
}

// overflow takes out what is too much, oldest first.
func (q *queue) overflow() []*entry {
	q.mu.Lock()
	defer q.mu.Unlock()
	var out []*entry
	for second := q.len; q.bytes > q.max; {
		e := q.root.prev
		if second > 0 && e.used.Swap(false) {
			second--
			q.unlink(e)
			q.link(e)
			continue
		}
		q.removeLocked(e)
		out = append(out, e)
	}
	return out
}

func (q *queue) removeLocked(e *entry) {
	q.bytes -= e.queued
	q.len--
	q.unlink(e)
	e.prev, e.next, e.queued = nil, nil, 0
}

func (q *queue) link(e *entry) {
	e.prev, e.next = &q.root, q.root.next
	e.prev.next, e.next.prev = e, e
}

func (q *queue) unlink(e *entry) {
	e.prev.next, e.next.prev = e.next, e.prev
}
