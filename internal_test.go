package main

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// mayImport is the table of docs/architecture.md: which packages of ours a package may import. A
// name that ends in /... stands for the folder and all under it. Tests may import more: what they
// test with is in forTests.
var mayImport = map[string][]string{
	".":                            {"cli"},
	"cli":                          {"cli/...", "proxy/...", "policy", "telemetry", "tiers/...", "job", "configs", "move", "testbed"},
	"proxy/server":                 {"proxy", "proxy/journal", "telemetry", "tiers", "job"},
	"proxy":                        {"policy", "telemetry", "tiers", "job"},
	"policy":                       {},
	"telemetry":                    {},
	"move":                         {"job"},
	"tiers":                        {"job"},
	"tiers/memory":                 {"tiers", "job"},
	"tiers/embedded":               {"tiers", "tiers/embedded/disk", "job"},
	"tiers/embedded/disk":          {"tiers"},
	"tiers/embedded/disk/disktest": {},
	"tiers/faulty":                 {"tiers", "job"},
	"tiers/tiertest":               {"tiers", "job"},
	"job":                          {},
	"configs":                      {},
	"testbed":                      {"testbed/..."},
	"testbed/...":                  {"testbed/..."},
	"e2e/...":                      {"testbed/..."},
	"proxy/proxytest":              {"tiers", "job"},
	"proxy/journal":                {"policy", "telemetry", "tiers", "tiers/embedded/disk", "job"},
	"proxy/backplane":              {"job"},
	"tiers/cassandra":              {"tiers", "job"},
	"tiers/redis":                  {"tiers", "job"},
}

// forTests is what tests may import beside that.
var forTests = []string{"telemetry", "tiers/...", "job", "policy", "proxy/...", "configs", "testbed/..."}

func TestImportsGoOneWay(t *testing.T) {
	seen := map[string]bool{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" ||
			d.Name() == "tools" || d.Name() == "bin") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") {
			return nil
		}
		dir := filepath.ToSlash(filepath.Dir(path))
		allowed, known := lookUp(dir)
		if !known {
			t.Errorf("%s is not in the table: say what it may import, here and in docs/architecture.md", dir)
			return nil
		}
		seen[dir] = true
		if strings.HasSuffix(path, "_test.go") {
			allowed = slices.Concat(allowed, forTests, []string{dir})
		}
		checkImports(t, path, allowed)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for dir := range mayImport {
		if !strings.HasSuffix(dir, "/...") && !seen[dir] {
			t.Errorf("%s is in the table and does not exist", dir)
		}
	}
}

func lookUp(dir string) (allowed []string, known bool) {
	if a, ok := mayImport[dir]; ok {
		return a, true
	}
	for pattern, a := range mayImport {
		if matches(pattern, dir) {
			return a, true
		}
	}
	return nil, false
}

func checkImports(t *testing.T, path string, allowed []string) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
	if err != nil {
		t.Error(err)
		return
	}
	for _, spec := range f.Imports {
		ours, is := strings.CutPrefix(strings.Trim(spec.Path.Value, `"`), "saltern/")
		if is && !slices.ContainsFunc(allowed, func(p string) bool { return matches(p, ours) }) {
			t.Errorf("%s imports %s, which the table does not allow", path, ours)
		}
	}
}

func matches(pattern, dir string) bool {
	parent, all := strings.CutSuffix(pattern, "/...")
	if !all {
		return pattern == dir
	}
	return dir == parent || strings.HasPrefix(dir, parent+"/")
}
