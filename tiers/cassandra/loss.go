package cassandra

import (
	"sync"
	"time"

	"github.com/apache/cassandra-gocql-driver/v2"
)

// nodes hears from the driver which nodes come and go. It says once of each that it went: the driver says so again
// with every attempt to reach it.
type nodes struct {
	went chan struct{} // of one element

	mu   sync.Mutex // guards away
	away map[string]bool
}

func newNodes() *nodes { return &nodes{went: make(chan struct{}, 1), away: make(map[string]bool)} }

// OnHostUp implements gocql.HostStatusChangeListener.
func (n *nodes) OnHostUp(e gocql.HostUpEvent) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.away, e.Host.HostID())
}

// OnHostDown implements gocql.HostStatusChangeListener.
func (n *nodes) OnHostDown(e gocql.HostDownEvent) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if id := e.Host.HostID(); !n.away[id] {
		n.away[id] = true
		select {
		case n.went <- struct{}{}:
		default: // it will be seen to
		}
	}
}

// announceLosses calls Options.OnDown for nodes that went, until Close.
func (s *Store) announceLosses() {
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.o.nodes.went:
			s.o.OnDown()
		}
	}
}

// Unlearn forgets which rows are stored, so that all that comes with a fact is written with it again: for a Cassandra
// that may have lost what it acknowledged. What it is about to say of the facts themselves stays: a return is a repeat
// though it has to be stored again.
func (s *Store) Unlearn() {
	s.days.clear()
	s.slots.clear()
	s.known.jobs.each(func(j *knownJob) {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.born, j.changed, j.marked, j.listed, j.rank = false, time.Time{}, 0, nil, 0
	})
}

// clear forgets everything.
func (g *generations[K, V]) clear() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.young, g.old = make(map[K]V), nil
}

// each calls f for every value, which must not ask for another one.
func (g *generations[K, V]) each(f func(V)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, m := range []map[K]V{g.young, g.old} {
		for _, v := range m {
			f(v)
		}
	}
}
