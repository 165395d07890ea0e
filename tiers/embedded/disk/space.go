package disk

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"saltern/tiers"
)

// errLowSpace is why a compaction is not carried out while the disk is nearly full.
var errLowSpace = errors.New("disk space too low for a compaction")

// spaceAge is how long a look at the free space holds. What is written meanwhile is counted.
const spaceAge = 100 * time.Millisecond

// space refuses writes before the disk is full, when the store could no longer keep itself in order.
type space struct {
	usage   func() (vfs.DiskUsage, error)
	now     func() time.Time
	reserve int64 // 0 until the first look, where the default is taken

	mu     sync.Mutex // guards the rest
	looked time.Time
	free   int64
	known  bool // false where the file system cannot say; nothing is refused then
}

// take counts bytes that are to be written, or refuses them. part is the share of the reserve that
// is to stay free: 1 for facts, less for what makes room.
func (sp *space) take(n int64, part float64) error {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	sp.lookLocked()
	if sp.known && sp.free-n < int64(float64(sp.reserve)*part) {
		return fmt.Errorf("%w: %d MiB free, %d MiB of them in reserve: make room, nothing was lost",
			tiers.ErrFull, max(0, sp.free)>>20, sp.reserve>>20)
	}
	sp.free -= n
	return nil
}

// low says whether the half of the reserve that only the log and the memtables may use is begun.
func (sp *space) low() bool {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	sp.lookLocked()
	return sp.known && sp.free < sp.reserve/2
}

func (sp *space) lookLocked() {
	now := sp.now()
	if age := now.Sub(sp.looked); !sp.looked.IsZero() && age >= 0 && age < spaceAge {
		return
	}
	sp.looked = now
	u, err := sp.usage()
	sp.known = err == nil
	if sp.known {
		sp.free = int64(min(u.AvailBytes, 1<<62))
		sp.reserve = cmp.Or(sp.reserve, min(defaultReserve, int64(min(u.TotalBytes, 1<<62))/4))
	}
}
