package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"saltern/proxy/server"
)

// version is stamped by the linker: -ldflags "-X saltern/cli.version=...". See versionString.
var version string

// versionString is the version of this program: the stamped one, else what the Go toolchain knows of
// the module or of the commit, else "unversioned".
func versionString() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unversioned"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	return commitOf(info.Settings)
}

func commitOf(settings []debug.BuildSetting) string {
	var revision, dirty string
	for _, s := range settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value[:min(len(s.Value), 12)]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "-dirty"
		}
	}
	if revision == "" {
		return "unversioned"
	}
	return revision + dirty
}

// versionInfo is the document of version --json.
type versionInfo struct {
	Version  string `json:"version"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	Protocol int    `json:"protocol"` // of the wire to the returner
}

func runVersion(_ context.Context, args []string, stdout, stderr io.Writer) error {
	flags := newFlags("version", "", stderr)
	asJSON := flags.Bool("json", false, "one JSON document")
	if err := parseFlags(flags, args, 0); err != nil {
		return err
	}
	v := versionInfo{
		Version:  versionString(),
		Go:       runtime.Version(),
		Platform: runtime.GOOS + "/" + runtime.GOARCH,
		Protocol: server.Protocol,
	}
	if *asJSON {
		return writeJSON(stdout, v)
	}
	_, err := fmt.Fprintf(stdout, "saltern %s (%s, %s, protocol %d)\n", v.Version, v.Go, v.Platform, v.Protocol)
	return err
}

// writeJSON writes one indented document.
func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
