// Package disktest has a disk whose free space a test sets.
package disktest

import (
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Disk is a file system of 1 GiB with as much free as was set. Safe for concurrent use.
type Disk struct {
	vfs.FS
	free atomic.Uint64
}

// New is a disk in memory with so many bytes free.
func New(free uint64) *Disk {
	d := &Disk{FS: vfs.NewMem()}
	d.SetFree(free)
	return d
}

// SetFree sets the free space, in bytes.
func (d *Disk) SetFree(n uint64) { d.free.Store(n) }

// GetDiskUsage is what pebble asks.
func (d *Disk) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{AvailBytes: d.free.Load(), TotalBytes: 1 << 30}, nil
}
