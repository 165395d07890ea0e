package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"saltern/configs"
	"saltern/proxy/server"
)

// checkConfig reads the daemon's configuration.
func (d *doctor) checkConfig() {
	const check = "config"
	if d.configFile == "" && isFile(usualConfig) {
		d.configFile = usualConfig
	}
	c := configs.Default()
	if d.configFile != "" {
		var err error
		if c, err = configs.Load(d.configFile); err != nil {
			d.fail(check, "correct it; configs/all-options.yaml describes every key", "%v", err)
			return
		}
	}
	c.Resolve(configs.ProcessEnv())
	if err := c.Validate(); err != nil {
		d.fail(check, "correct it; configs/all-options.yaml describes every key", "%v", err)
		return
	}
	d.config = c
	if d.configFile == "" {
		d.ok(check, "there is no file; the defaults hold")
		return
	}
	d.ok(check, "%s is valid", d.configFile)
}

// checkSocket looks at the socket that Salt connects to, without connecting.
func (d *doctor) checkSocket() {
	const check = "socket"
	path, isUnix := strings.CutPrefix(d.address, "unix:")
	if !isUnix {
		d.skipped(check, "Salt connects to %s, which is no Unix socket", d.address)
		return
	}
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		d.fail(check, "start the daemon (systemctl start saltern, or saltern serve --listen "+d.address+")",
			"there is no %s", path)
		return
	case err != nil:
		d.skipped(check, "%v (run doctor as root)", err)
		return
	case info.Mode().Type() != fs.ModeSocket:
		d.fail(check, "move it away and start the daemon", "%s is there and is no socket", path)
		return
	}
	if info.Mode().Perm()&0o002 != 0 {
		d.warn(check, "set socket-mode: \"0660\" and socket-group in the daemon's configuration",
			"%s has mode %04o: every user of this machine can read and write all jobs", path, info.Mode().Perm())
	}
	d.checkSocketAccess(path, info)
}

// checkSocketAccess asks whether the user that the master runs as may connect.
func (d *doctor) checkSocketAccess(path string, info fs.FileInfo) {
	const check = "socket"
	who := "root"
	if d.master != nil {
		who = d.master.str("user", "root")
	}
	account, err := lookUpAccount(who)
	if err != nil {
		d.skipped(check, "whether the master's user may connect: %v", err)
		return
	}
	if barred, err := account.barredFrom(path); err != nil {
		d.skipped(check, "whether %s may connect: %v", who, err)
		return
	} else if barred != "" {
		d.fail(check, "set socket-group in the daemon's configuration to a group of "+who+", or RuntimeDirectoryMode in its unit to 0755",
			"the master runs as %s, who may not pass %s", who, barred)
		return
	}
	d.ok(check, "%s has mode %04o, and %s may connect", path, info.Mode().Perm(), who)
}

// checkHandshake connects as the returner does.
func (d *doctor) checkHandshake(ctx context.Context) {
	const check = "handshake"
	h, err := sayHello(ctx, d.address)
	var refusal *refusedError
	switch {
	case err == nil:
	case errors.As(err, &refusal):
		d.fail(check, "install the saltern and the returner of one version", "the daemon at %s refuses: %v", d.address, err)
		return
	case errors.Is(err, syscall.ENOENT):
		d.skipped(check, "there is no socket")
		return
	case errors.Is(err, syscall.ECONNREFUSED):
		d.fail(check, "start the daemon; it replaces a stale socket by itself",
			"nobody listens at %s: the daemon is not running", d.address)
		return
	case errors.Is(err, fs.ErrPermission):
		d.skipped(check, "this user may not connect to %s (run doctor as root)", d.address)
		return
	default:
		d.fail(check, "look at the daemon's log (journalctl -u saltern), then restart it",
			"%s takes the connection and does not answer as Saltern: %v", d.address, err)
		return
	}
	d.daemon = h
	if h.Protocol != server.Protocol {
		d.fail(check, "install the saltern and the returner of one version",
			"the daemon %s speaks protocol %d, this program %d", h.Version, h.Protocol, server.Protocol)
		return
	}
	if h.Version != versionString() {
		d.warn(check, "restart the daemon, or run the doctor of its version",
			"the daemon at %s is version %s, this program %s", d.address, h.Version, versionString())
		return
	}
	d.ok(check, "the daemon at %s is version %s, protocol %d, namespace %s", d.address, h.Version, h.Protocol, h.Namespace)
}

// checkHTTP asks whether people's side answers, and what time it has.
func (d *doctor) checkHTTP(ctx context.Context) {
	const check = "http"
	address := cmp.Or(d.httpAddr, os.Getenv(envHTTP))
	if address == "" && d.config != nil {
		if !d.config.HTTPEnabled() {
			d.skipped(check, "it is turned off in the configuration; jobs and events need it")
			return
		}
		address = d.config.HTTP
	}
	c, err := newClient(cmp.Or(address, defaultHTTP))
	if err != nil {
		d.fail(check, "name the address as HOST:PORT", "%v", err)
		return
	}
	date, err := c.readiness(ctx)
	if err != nil {
		d.fail(check, "start the daemon, or look at its log for why it is not ready", "%v", err)
		return
	}
	d.ok(check, "%s is ready", c.base)
	d.checkDate(date)
}

// readiness asks /readyz and gives the date in its answer, zero where it has none.
func (c *client) readiness(ctx context.Context) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+"/readyz", nil)
	if err != nil {
		return time.Time{}, err
	}
	response, err := c.http.Do(request)
	if err != nil {
		return time.Time{}, fmt.Errorf("no answer from %s: %w", c.base, withoutURL(err))
	}
	defer response.Body.Close()
	date, _ := http.ParseTime(response.Header.Get("Date"))
	if response.StatusCode != http.StatusOK {
		return date, fmt.Errorf("%s/readyz says %s", c.base, response.Status)
	}
	return date, nil
}

// maxSkew is how far two clocks may be apart: the Date header has whole seconds, and takes a moment.
const maxSkew = 2 * time.Second

func (d *doctor) checkDate(date time.Time) {
	if date.IsZero() {
		return
	}
	// The header is cut to the second, so the true time is half a second later on average.
	skew := d.now().Sub(date.Add(500 * time.Millisecond)).Round(100 * time.Millisecond)
	if skew.Abs() > maxSkew {
		d.warn("clock", "let both machines follow one time (chrony, systemd-timesyncd): job ids and retention go by it",
			"the daemon's clock and this one are %v apart", skew.Abs())
		return
	}
	d.ok("clock", "the daemon's clock and this one agree within %v", maxSkew)
}

// checkYear finds clocks that were never set: job ids are times.
func (d *doctor) checkYear() {
	now, built := d.now(), builtAt()
	if now.Before(built) {
		d.fail("clock", "set the clock (chrony, systemd-timesyncd), then restart salt-master and saltern: job ids are times",
			"the clock says %s, before this program was made (%s)", now.Format(time.DateOnly), built.Format(time.DateOnly))
		return
	}
	if ahead := built.AddDate(20, 0, 0); now.After(ahead) {
		d.warn("clock", "set the clock (chrony, systemd-timesyncd): job ids are times",
			"the clock says %s, far after this program was made", now.Format(time.DateOnly))
	}
}

// builtAt is the time of the commit that this program was built of, or a time before its first one.
func builtAt() time.Time {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.time" {
				if t, err := time.Parse(time.RFC3339, s.Value); err == nil {
					return t
				}
			}
		}
	}
	return time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)
}

// checkReturnerVersion compares the returner that the master would load with the daemon.
func (d *doctor) checkReturnerVersion() {
	if d.daemon.Version == "" {
		return
	}
	for _, r := range d.returners {
		theirs, ours := major(r.Version), major(d.daemon.Version)
		if !r.Used || theirs == "" || ours == "" || theirs == ours {
			continue
		}
		d.fail("versions", "install the returner of "+d.daemon.Version+" at "+filepath.Dir(r.Path)+" and restart salt-"+r.For,
			"the %s would load returner %s, and the daemon is %s", r.For, r.Version, d.daemon.Version)
	}
}

// major is the first number of a version as 1.2.3 or v1.2.3, empty for anything else.
func major(version string) string {
	first, _, found := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	if !found || strings.Trim(first, "0123456789") != "" {
		return ""
	}
	return first
}
