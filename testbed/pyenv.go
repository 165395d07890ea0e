package testbed

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// Checkout is the root of the project's source, found from where this file was compiled. It is "" in a binary
// that was built with -trimpath, as bin/saltern is.
func Checkout() string {
	_, file, _, ok := runtime.Caller(0)
	if !ok || !filepath.IsAbs(file) {
		return ""
	}
	return filepath.Dir(filepath.Dir(file))
}

// PythonEnv gives the folder of the Python environment of testbed/pyenv/NAME.txt, and builds it when the cache
// does not have it. It needs the checkout.
func PythonEnv(ctx context.Context, name string) (string, error) {
	return pyenvScript(ctx, "build", name)
}

// pyenvScript runs a script of testbed/pyenv, which prints a folder.
func pyenvScript(ctx context.Context, script, arg string) (string, error) {
	root := Checkout()
	if root == "" {
		return "", fmt.Errorf("testbed/pyenv/%s %s needs a checkout of the source", script, arg)
	}
	cmd := exec.CommandContext(ctx, filepath.Join(root, "testbed", "pyenv", script), arg)
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("testbed/pyenv/%s %s: %w: %s", script, arg, err, bytes.TrimSpace(complaints.Bytes()))
	}
	return strings.TrimSpace(out.String()), nil
}

// BuildSaltern gives the path of a saltern binary: the one that the environment variable SALTERN_BIN names, or one
// built from the checkout into dir.
func BuildSaltern(ctx context.Context, dir string) (string, error) {
	if path := os.Getenv("SALTERN_BIN"); path != "" {
		return path, nil
	}
	path := filepath.Join(dir, "saltern")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", path, ".")
	cmd.Dir = Checkout()
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building saltern: %w: %s", err, bytes.TrimSpace(out))
	}
	return path, nil
}

// ReturnerDir is the folder of the returner in the checkout, for Salt's returner_dirs.
func ReturnerDir() string {
	return filepath.Join(Checkout(), "salt", "src", "saltext", "saltern", "returners")
}

// SaltSource gives the folder of a Salt's source distribution, unpacked, and fetches it when the cache does not
// have it.
func SaltSource(ctx context.Context, version string) (string, error) {
	return pyenvScript(ctx, "salt-source", version)
}
