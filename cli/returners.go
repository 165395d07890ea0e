package cli

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// returnerCopy is a copy of the returner that Salt can find, or could after a synchronization.
type returnerCopy struct {
	For     string `json:"for"` // "master" or "minion"
	Path    string `json:"path"`
	Version string `json:"version"` // empty: it could not be read
	From    string `json:"from"`    // what makes Salt look there
	Used    bool   `json:"used"`    // the one that Salt loads

	rank  rank
	never bool // it is not loaded from where it is
}

// rank is how Salt's loader (salt.loader.lazy) prefers one form of a module to another, wherever
// they are; copies of one rank are taken in the order of their folders.
type rank int

const (
	byPackage  rank = iota // saltern/__init__.py
	bySource               // saltern.py
	byCompiled             // what is left in __pycache__ of a saltern.py that is gone
	byVirtual              // another name, with saltern as its __virtualname__
)

// fromFileRoots is where copies come from that wait to be synchronized into extension_modules.
const fromFileRoots = "file_roots, for sync"

// findReturners lists the copies for one master or minion in the order in which Salt looks
// (salt.loader._module_dirs): extension_modules, returner_dirs, installed extensions, Salt's own.
// The first one of the best rank is used.
func findReturners(c *saltConfig, sites []string) []returnerCopy {
	var copies []returnerCopy
	add := func(from string, never bool, dirs ...string) {
		for _, dir := range dirs {
			for _, r := range returnersIn(dir) {
				r.For, r.From, r.never = c.role, from, never
				copies = append(copies, r)
			}
		}
	}
	for _, dir := range asStrings(c.opts["module_dirs"]) {
		add("module_dirs", false, filepath.Join(dir, "returners"), filepath.Join(dir, "_returners"))
	}
	add("extension_modules", false, filepath.Join(c.extensionModules(), "returners"))
	add("returner_dirs", false, asStrings(c.opts["returner_dirs"])...)
	for _, site := range sites {
		dirs := extensionDirs(site)
		if hasEntryPoint(site) {
			add("pip", false, dirs...)
		} else {
			add("no entry point", true, dirs...)
		}
	}
	for _, site := range sites {
		add("salt itself", false, filepath.Join(site, "salt", "returners"))
	}
	if c.role == "master" {
		for _, root := range c.fileRoots() {
			add(fromFileRoots, true, filepath.Join(root, "_returners"))
		}
	}
	markUsed(copies)
	return copies
}

func markUsed(copies []returnerCopy) {
	best := -1
	for i, c := range copies {
		if !c.never && (best < 0 || c.rank < copies[best].rank) {
			best = i
		}
	}
	if best >= 0 {
		copies[best].Used = true
	}
}

var (
	versionLine = regexp.MustCompile(`(?m)^__version__\s*=\s*["']([^"'\n]*)["']`)
	nameLine    = regexp.MustCompile(`(?m)^__virtualname__\s*=\s*["']saltern["']`)
)

// returnersIn lists the modules in a folder that are the returner: by the name of the file, or by
// the __virtualname__ inside.
func returnersIn(dir string) []returnerCopy {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var found []returnerCopy
	for _, e := range entries {
		c := returnerCopy{Path: filepath.Join(dir, e.Name()), rank: byVirtual}
		switch {
		case strings.HasPrefix(e.Name(), "_"):
			continue // Salt loads no private modules
		case e.Name() == "saltern":
			c.Path, c.rank = filepath.Join(c.Path, "__init__.py"), byPackage
		case e.Name() == "saltern.py":
			c.rank = bySource
		}
		if !strings.HasSuffix(c.Path, ".py") || !isFile(c.Path) {
			continue
		}
		text, err := os.ReadFile(c.Path)
		if c.rank == byVirtual && !nameLine.Match(text) {
			continue
		}
		if m := versionLine.FindSubmatch(text); err == nil && m != nil {
			c.Version = string(m[1])
		}
		found = append(found, c)
	}
	if slices.ContainsFunc(found, func(c returnerCopy) bool { return c.rank == bySource }) {
		return found
	}
	compiled, _ := filepath.Glob(filepath.Join(dir, "__pycache__", "saltern.cpython-*.pyc"))
	for _, path := range compiled {
		found = append(found, returnerCopy{Path: path, rank: byCompiled})
	}
	return found
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// extensionDirs are the folders of the extension's returners in a site-packages folder: its own, and
// those of a source that was installed with pip -e.
func extensionDirs(site string) []string {
	bases := []string{site}
	links, _ := filepath.Glob(filepath.Join(site, "*saltern*.pth"))
	for _, link := range links {
		text, err := os.ReadFile(link)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			if line = strings.TrimSpace(line); filepath.IsAbs(line) {
				bases = append(bases, line)
			}
		}
	}
	for i, base := range bases {
		bases[i] = filepath.Join(base, "saltext", "saltern", "returners")
	}
	return bases
}

// hasEntryPoint says whether the extension is installed in a way that Salt's loader sees.
func hasEntryPoint(site string) bool {
	files, _ := filepath.Glob(filepath.Join(site, "saltext?saltern-*.dist-info", "entry_points.txt"))
	return slices.ContainsFunc(files, func(file string) bool {
		text, err := os.ReadFile(file)
		return err == nil && strings.Contains(string(text), "[salt.loader]")
	})
}

// saltSites are the site-packages folders of the Pythons that run Salt on this machine: that of
// the program on the PATH, that of the official packages, and that of an active virtual environment.
func saltSites(program string) []string {
	var prefixes []string
	if path, err := exec.LookPath(program); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			prefixes = append(prefixes, filepath.Dir(path), filepath.Dir(filepath.Dir(path)))
			if python := interpreterOf(path); filepath.IsAbs(python) {
				prefixes = append(prefixes, filepath.Dir(filepath.Dir(python)))
			}
		}
	}
	prefixes = append(prefixes, "/opt/saltstack/salt")
	if env := os.Getenv("VIRTUAL_ENV"); env != "" {
		prefixes = append(prefixes, env)
	}
	var sites []string
	for _, prefix := range prefixes {
		for _, pattern := range []string{"lib/python3*/site-packages", "lib/python3*/dist-packages", "extras-3.*",
			"local/lib/python3*/site-packages", "local/lib/python3*/dist-packages"} {
			dirs, _ := filepath.Glob(filepath.Join(prefix, pattern))
			for _, dir := range dirs {
				if !slices.Contains(sites, dir) {
					sites = append(sites, dir)
				}
			}
		}
	}
	return sites
}

// interpreterOf is the program in the first line of a script, empty when it has none.
func interpreterOf(script string) string {
	f, err := os.Open(script)
	if err != nil {
		return ""
	}
	defer f.Close()
	line, _ := bufio.NewReaderSize(f, 512).ReadString('\n')
	fields := strings.Fields(strings.TrimPrefix(line, "#!"))
	if !strings.HasPrefix(line, "#!") || len(fields) == 0 {
		return ""
	}
	return fields[0]
}

// saltVersion is the version of Salt in the first site-packages folder that has it.
func saltVersion(sites []string) string {
	for _, site := range sites {
		if text, err := os.ReadFile(filepath.Join(site, "salt", "_version.txt")); err == nil {
			return strings.TrimSpace(string(text))
		}
	}
	return ""
}
