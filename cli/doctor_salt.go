package cli

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// checkSaltConfig reads what Salt is configured to do, and says whether it uses Saltern.
func (d *doctor) checkSaltConfig() {
	const check = "salt"
	d.minion, _ = readSaltConfig(d.saltDir, "minion") // its master stores for it; it matters only for its returner
	master, err := readSaltConfig(d.saltDir, "master")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		d.skipped(check, "there is no %s: no Salt master on this machine, or its folder is another (--salt-config)",
			filepath.Join(d.saltDir, "master"))
		return
	case errors.Is(err, fs.ErrPermission):
		d.skipped(check, "the master's configuration cannot be read: %v (run doctor as root)", err)
		return
	case err != nil:
		d.fail(check, "correct the file; Salt does not read it either", "the master's configuration is not valid: %v", err)
		return
	}
	d.master = master
	for _, key := range master.twice {
		d.warn(check, "remove one of the two; Salt takes the last", "%s stands twice", key)
	}
	d.checkCacheOptions()
}

// checkCacheOptions looks at the options that make Salt use a returner.
func (d *doctor) checkCacheOptions() {
	const check = "salt"
	jobs := ""
	for _, key := range []string{"master_job_cache", "ext_job_cache"} {
		if d.master.str(key, "") == "saltern" {
			jobs = key
		}
	}
	events := slices.Contains(asStrings(d.master.opts["event_return"]), "saltern")
	where := strings.Join(d.master.files, ", ")
	switch {
	case jobs == "" && events:
		d.warn(check, "add master_job_cache: saltern and restart salt-master",
			"the master sends its events to Saltern and keeps its jobs elsewhere (%s)", where)
	case jobs == "":
		d.fail(check, "put master_job_cache: saltern and event_return: [saltern] into "+
			filepath.Join(d.saltDir, "master.d", "saltern.conf")+" and restart salt-master",
			"the master does not use Saltern: neither master_job_cache nor ext_job_cache nor event_return names it (%s)", where)
	case !events:
		d.warn(check, "add event_return: [saltern], unless nobody reads events",
			"%s is saltern; events are not kept", jobs)
	case jobs == "ext_job_cache":
		d.ok(check, "ext_job_cache and event_return are saltern; returns of salt-call and of runners stay in %s",
			d.master.str("master_job_cache", "local_cache"))
	default:
		d.ok(check, "master_job_cache and event_return are saltern")
	}
}

// checkAddress says where Salt looks for Saltern, and whether the daemon is to be there.
func (d *doctor) checkAddress() {
	d.address = defaultAddress
	if d.master == nil {
		if d.config != nil {
			d.address = d.config.Listen[0]
		}
		return
	}
	if a := d.master.ours("address"); a != "" {
		d.address = a
	}
	if d.config == nil || d.configFile == "" || slices.Contains(d.config.Listen, d.address) {
		return // without a file the daemon may have been told its address by a flag
	}
	d.warn("address", "put saltern: {address: "+d.config.Listen[0]+"} into the master's configuration, or listen: ["+
		d.address+"] into the daemon's",
		"Salt looks for Saltern at %s, and the daemon is configured for %s", d.address, strings.Join(d.config.Listen, " "))
}

// checkReturners lists the copies of the returner, and says what is wrong with them.
func (d *doctor) checkReturners() {
	const check = "returner"
	sites := saltSites("salt-master")
	if d.minion != nil {
		d.returners = findReturners(d.minion, saltSites("salt-minion"))
	}
	if d.master == nil {
		return
	}
	for _, dir := range asStrings(d.master.opts["returner_dirs"]) {
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			d.warn(check, "correct returner_dirs in the master's configuration", "returner_dirs names %s, which is no folder", dir)
		}
	}
	copies := findReturners(d.master, sites)
	d.returners = append(copies, d.returners...)
	d.checkCopies(copies, saltVersion(sites))
}

func (d *doctor) checkCopies(copies []returnerCopy, salt string) {
	const check = "returner"
	if salt == "" {
		salt = "of a version that was not found"
	}
	i := slices.IndexFunc(copies, func(c returnerCopy) bool { return c.Used })
	if i < 0 {
		dir := cmp.Or(returnerDir(), "DIR")
		d.fail(check, "put returner_dirs: ["+dir+"] into the master's configuration, DIR being the folder of saltern.py, and restart salt-master",
			"the master (Salt %s) finds no returner: it would publish nothing", salt)
		return
	}
	used := copies[i]
	for _, c := range copies {
		if c.Version == used.Version {
			continue
		}
		remedy := "remove the copies that are not wanted, and restart salt-master"
		if c.From == fromFileRoots {
			remedy = "replace it by the version in use: the next saltutil.sync_returners would put it first"
		}
		d.warn(check, remedy, "there are two versions: %s in use at %s, and %s at %s", shownVersion(used), used.Path, shownVersion(c), c.Path)
	}
	d.ok(check, "the master (Salt %s) would load %s, version %s, found by %s", salt, used.Path, shownVersion(used), used.From)
}

func shownVersion(c returnerCopy) string { return cmp.Or(c.Version, "unknown") }
