package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"saltern/configs"
)

// Results of a check.
const (
	checkOK      = "ok"
	checkWarn    = "warn"    // it works, and something should be looked at
	checkFail    = "fail"    // it does not work
	checkSkipped = "skipped" // it could not be looked at from here
)

// finding is what one check found.
type finding struct {
	Check  string `json:"check"`
	Status string `json:"status"`
	Detail string `json:"detail"`
	Remedy string `json:"remedy,omitempty"` // what to do, in one line
}

// doctor looks at one set-up. Its checks run in the order of examine; later ones use what earlier
// ones found.
type doctor struct {
	configFile string // empty: the usual one, if it is there
	saltDir    string
	httpAddr   string // empty: as the configuration says
	now        func() time.Time

	config    *configs.Config
	master    *saltConfig // nil: there is no master's configuration that can be read
	minion    *saltConfig // the same of a minion
	address   string      // where Salt looks for Saltern
	daemon    hello       // what the daemon said of itself; zero: it did not
	returners []returnerCopy
	findings  []finding
}

// report is the document of doctor --json.
type report struct {
	OK        bool           `json:"ok"` // nothing fails
	Version   string         `json:"version"`
	Checks    []finding      `json:"checks"`
	Returners []returnerCopy `json:"returners"`
}

const (
	usualConfig  = "/etc/saltern/saltern.yaml"
	usualSaltDir = "/etc/salt"
)

func runDoctor(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	d := &doctor{now: time.Now}
	flags := newFlags("doctor", "", stderr)
	flags.StringVar(&d.configFile, "config", "", "the daemon's configuration `FILE` (default "+usualConfig+", if it is there)")
	flags.StringVar(&d.saltDir, "salt-config", usualSaltDir, "`DIR` of Salt's configuration")
	flags.StringVar(&d.httpAddr, "http", "", "`ADDRESS` of the daemon's HTTP (default: "+envHTTP+", else as configured)")
	asJSON := flags.Bool("json", false, "one JSON document, for programs")
	if err := parseFlags(flags, args, 0); err != nil {
		return err
	}
	d.examine(ctx)
	r := report{OK: true, Version: versionString(), Checks: d.findings, Returners: append([]returnerCopy{}, d.returners...)}
	for _, f := range d.findings {
		r.OK = r.OK && f.Status != checkFail
	}
	write := r.write
	if *asJSON {
		write = func(w io.Writer) error { return writeJSON(w, r) }
	}
	if err := write(stdout); err != nil {
		return err
	}
	if !r.OK {
		return &ExitError{Code: ExitFailed}
	}
	return nil
}

func (d *doctor) examine(ctx context.Context) {
	d.checkConfig()
	d.checkSaltConfig()
	d.checkAddress()
	d.checkReturners()
	d.checkSocket()
	d.checkHandshake(ctx)
	d.checkReturnerVersion()
	d.checkHTTP(ctx)
	d.checkYear()
	d.checkDataDir()
	d.checkSpool()
}

func (d *doctor) ok(check, format string, args ...any) {
	d.findings = append(d.findings, finding{Check: check, Status: checkOK, Detail: fmt.Sprintf(format, args...)})
}

func (d *doctor) skipped(check, format string, args ...any) {
	d.findings = append(d.findings, finding{Check: check, Status: checkSkipped, Detail: fmt.Sprintf(format, args...)})
}

func (d *doctor) warn(check, remedy, format string, args ...any) {
	d.findings = append(d.findings, finding{check, checkWarn, fmt.Sprintf(format, args...), remedy})
}

func (d *doctor) fail(check, remedy, format string, args ...any) {
	d.findings = append(d.findings, finding{check, checkFail, fmt.Sprintf(format, args...), remedy})
}

// write shows the report to a person.
func (r report) write(w io.Writer) error {
	var b strings.Builder
	counts := map[string]int{}
	for _, f := range r.Checks {
		counts[f.Status]++
		fmt.Fprintf(&b, "%-8s %-10s %s\n", f.Status, f.Check, harmless(f.Detail))
		if f.Remedy != "" {
			fmt.Fprintf(&b, "%19s do: %s\n", "", harmless(f.Remedy))
		}
	}
	if len(r.Returners) > 0 {
		b.WriteString("\nCopies of the returner that Salt can find:\n")
		t := table{columns: []column{{title: "FOR"}, {title: "USED"}, {title: "VERSION"}, {title: "FOUND BY"}, {title: "FILE"}}}
		for _, c := range r.Returners {
			used := ""
			if c.Used {
				used = "yes"
			}
			t.add(c.For, used, c.Version, c.From, c.Path)
		}
		if err := t.write(&b, 0); err != nil {
			return err
		}
	}
	fmt.Fprintf(&b, "\n%d ok, %d to look at, %d wrong, %d not looked at\n",
		counts[checkOK], counts[checkWarn], counts[checkFail], counts[checkSkipped])
	_, err := io.WriteString(w, b.String())
	return err
}
