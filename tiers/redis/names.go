package redis

import (
	"sync"

	"saltern/job"
)

// nameCache keeps the sorted names of the minions of a few large jobs, so that they are not read and sorted for
// every page. Whether they still are all names Redis says with each page.
type nameCache struct {
	mu   sync.Mutex // guards the rest
	jobs []namesOf  // the last used first
}

type namesOf struct {
	jid job.JID
	names
}

type names struct {
	minions []job.Minion
	stamp   string
	average int // payload of a return
}

// mostNames bounds the memory: a job of 60,000 minions has some 3 MB of them.
const mostNames = 8

func (c *nameCache) get(jid job.JID) (names, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, j := range c.jobs {
		if j.jid == jid {
			copy(c.jobs[1:], c.jobs[:i])
			c.jobs[0] = j
			return j.names, true
		}
	}
	return names{}, false
}

func (c *nameCache) put(jid job.JID, n names) {
	c.mu.Lock()
	defer c.mu.Unlock()
	kept := []namesOf{{jid, n}}
	for _, j := range c.jobs {
		if j.jid != jid && len(kept) < mostNames {
			kept = append(kept, j)
		}
	}
	c.jobs = kept
}
