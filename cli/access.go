package cli

import (
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
)

// account is a user of this machine with its groups.
type account struct {
	uid    uint32
	groups []uint32
}

func lookUpAccount(name string) (account, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return account{}, err
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return account{}, fmt.Errorf("user %s: %w", name, err)
	}
	a := account{uid: uint32(uid)}
	ids, err := u.GroupIds()
	if err != nil {
		return account{}, fmt.Errorf("groups of %s: %w", name, err)
	}
	for _, id := range ids {
		gid, err := strconv.ParseUint(id, 10, 32)
		if err != nil {
			return account{}, fmt.Errorf("groups of %s: %w", name, err)
		}
		a.groups = append(a.groups, uint32(gid))
	}
	return a, nil
}

// barredFrom says what keeps the account from connecting to a socket: a folder on the way that it
// may not enter, or the socket itself; empty when nothing does. Access lists beyond the modes are
// not looked at.
func (a account) barredFrom(socket string) (string, error) {
	if a.uid == 0 {
		return "", nil
	}
	const enter, write = 0o1, 0o2
	path, bit := socket, uint32(write)
	for {
		allowed, err := a.may(path, bit)
		if err != nil {
			return "", err
		}
		if !allowed {
			return path, nil
		}
		parent := filepath.Dir(path)
		if parent == path {
			return "", nil
		}
		path, bit = parent, enter
	}
}

// may says whether the mode of a file gives the account a permission.
func (a account) may(path string, bit uint32) (bool, error) {
	info, err := os.Stat(path)
	if err != nil {
		return false, err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return false, fmt.Errorf("the owner of %s is not known", path)
	}
	mode := uint32(info.Mode().Perm())
	switch {
	case stat.Uid == a.uid:
		return mode>>6&bit != 0, nil
	case slices.Contains(a.groups, stat.Gid):
		return mode>>3&bit != 0, nil
	default:
		return mode&bit != 0, nil
	}
}
