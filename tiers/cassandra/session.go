package cassandra

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/apache/cassandra-gocql-driver/v2"

	"saltern/tiers"
)

// link is the session, or the reason why there is none.
type link struct {
	mu      sync.RWMutex // guards the rest
	session *gocql.Session
	why     error     // set while session is nil
	lostAt  time.Time // of the first failure that looks like a lost session, since the last success
}

var errNotYet = errors.New("the session is being made")

func (l *link) down(why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.session, l.why = nil, why
}

func (l *link) up(session *gocql.Session) (old *gocql.Session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	old, l.session, l.why, l.lostAt = l.session, session, nil, time.Time{}
	return old
}

func (l *link) get() (*gocql.Session, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.session, l.why
}

// failed notes an error that may mean that the session is lost.
func (l *link) failed(err error, now time.Time) {
	if !lost(err) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lostAt.IsZero() {
		l.lostAt = now
	}
}

func (l *link) worked() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lostAt = time.Time{}
}

func (l *link) lostSince() time.Time {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.lostAt
}

// Ready says whether the store can be asked, and if not, why: one line that says what to do.
func (s *Store) Ready() error {
	_, err := s.session()
	return err
}

func (s *Store) session() (*gocql.Session, error) {
	session, why := s.link.get()
	if session == nil {
		return nil, fmt.Errorf("%w: %w", tiers.ErrUnavailable, why)
	}
	return session, nil
}

const (
	firstWait = 250 * time.Millisecond
	longWait  = 4 * time.Second
	// probeEvery is how often a session that may be lost is tried.
	probeEvery = time.Second
	// remakeAfter is how long the driver is given to find its nodes again before a new session is made: making
	// one for every short trouble would cost all connections (temporalio/temporal#6207).
	remakeAfter = 4 * time.Second
	// oldSession is how long the session before stays open: as long as a list may take.
	oldSession = 30 * time.Second
)

// keepSession makes the session, and makes it again when it is lost, until Close.
func (s *Store) keepSession() {
	defer s.dropSession()
	wait := firstWait
	for s.ctx.Err() == nil {
		session, err := s.makeSession()
		if err != nil {
			if old, why := s.link.get(); old == nil {
				if why == nil || why.Error() != err.Error() {
					s.log.Warn("cassandra cannot be asked, trying again", "err", err)
				}
				s.link.down(err)
			}
			if !s.sleep(jitter(wait)) {
				return
			}
			wait = min(2*wait, longWait)
			continue
		}
		wait = firstWait
		if old := s.link.up(session); old != nil {
			// It may have come back meanwhile, and calls that use it are to end.
			s.loops.Go(func() {
				s.sleep(oldSession)
				closeSession(old)
			})
		}
		s.log.Info("connected to cassandra", "keyspace", s.o.Keyspace)
		s.watch(session)
	}
}

// watch returns when a new session is to be made.
func (s *Store) watch(session *gocql.Session) {
	for s.sleep(probeEvery) {
		since := s.link.lostSince()
		if since.IsZero() {
			continue
		}
		if err := s.probe(session); err == nil {
			s.link.worked()
			continue
		}
		if s.o.Now().Sub(since) >= remakeAfter {
			s.log.Warn("cassandra is lost, making a new session", "since", since)
			return
		}
	}
}

func (s *Store) probe(session *gocql.Session) error {
	var release string
	return session.Query("SELECT release_version FROM system.local").Consistency(gocql.LocalOne).
		ScanContext(s.ctx, &release)
}

// made is a session that was made.
type made struct {
	session *gocql.Session
	err     error
}

// makeSession gives a session whose keyspace has the schema that this version needs. The driver cannot be told
// to stop, so it is left behind when the store closes.
func (s *Store) makeSession() (*gocql.Session, error) {
	result := make(chan made, 1)
	go func() {
		session, err := s.connect()
		result <- made{session, err}
	}()
	select {
	case m := <-result:
		return m.session, m.err
	case <-s.ctx.Done():
		go func() {
			if m := <-result; m.session != nil {
				closeSession(m.session)
			}
		}()
		return nil, s.ctx.Err()
	}
}

func (s *Store) connect() (*gocql.Session, error) {
	ctx, cancel := context.WithTimeout(s.ctx, time.Minute)
	defer cancel()
	session, err := s.o.checkedSession(ctx)
	if !s.o.CreateSchema || !errors.Is(err, ErrSchema) {
		return session, err
	}
	if err := ApplySchema(ctx, s.o); err != nil {
		return nil, err
	}
	return s.o.checkedSession(ctx)
}

// checkedSession connects to a keyspace that has the schema that this version needs.
func (o *Options) checkedSession(ctx context.Context) (*gocql.Session, error) {
	session, err := o.newSession(o.Keyspace)
	if err != nil {
		return nil, o.orNoKeyspace(ctx, err)
	}
	if err := o.checkSchema(ctx, session); err != nil {
		closeSession(session)
		return nil, err
	}
	return session, nil
}

// newSession connects. An empty keyspace is none.
func (o *Options) newSession(keyspace string) (*gocql.Session, error) {
	c, err := o.cluster(keyspace, driverLog{o.Logger, o.said})
	if err != nil {
		return nil, err
	}
	if o.nodes != nil {
		c.Metadata.HostListener.HostStateChangeListener = o.nodes
	}
	session, err := c.CreateSession()
	if err != nil {
		return nil, fmt.Errorf("connecting to %v: %w", o.Hosts, err)
	}
	return session, nil
}

func (s *Store) dropSession() {
	if session, _ := s.link.get(); session != nil {
		closeSession(session)
	}
	s.link.down(errors.New("the store is closed"))
}

// closePatience is how long the closing of a session is waited for.
const closePatience = 2 * time.Second

// closeSession closes a session, or leaves it behind: in version 2.1.2 of the driver Close stops the refreshing of its
// metadata first, and then waits for a control connection that may just be waiting for such a refresh, for ever.
func closeSession(session *gocql.Session) {
	closed := make(chan struct{})
	go func() {
		session.Close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(closePatience):
	}
}

// sleep waits and says whether the store is still open.
func (s *Store) sleep(d time.Duration) bool {
	select {
	case <-s.ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
