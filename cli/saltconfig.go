package cli

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"go.yaml.in/yaml/v3"
)

// saltConfig is the configuration of a master or minion, put together from its files as
// salt.config does: the main file, then what default_include names (master.d/*.conf), then what
// include names. Defaults are not in it.
type saltConfig struct {
	role  string // "master" or "minion"
	files []string
	opts  map[string]any
	// twice are keys that stand twice in one file, as "key in file"; Salt takes the last.
	twice []string
}

// readSaltConfig reads the configuration of a role in a folder. The error is fs.ErrNotExist where
// there is none.
func readSaltConfig(dir, role string) (*saltConfig, error) {
	c := &saltConfig{role: role}
	main := filepath.Join(dir, role)
	opts, err := c.readFile(main)
	if err != nil {
		return nil, err
	}
	c.opts = opts
	// Both before the first include is laid over the main file, as Salt does.
	defaultInclude, include := opts["default_include"], opts["include"]
	if defaultInclude == nil {
		defaultInclude = role + ".d/*.conf"
	}
	for _, patterns := range []any{defaultInclude, include} {
		more, err := c.readIncludes(asStrings(patterns), main, 0)
		if err != nil {
			return nil, err
		}
		maps.Copy(c.opts, more)
	}
	return c, nil
}

// maxIncludes is how deep includes may include others; Salt itself never ends on a cycle.
const maxIncludes = 20

// readIncludes reads the files that patterns name, beside the file that includes them.
func (c *saltConfig) readIncludes(patterns []string, from string, depth int) (map[string]any, error) {
	if depth > maxIncludes {
		return nil, fmt.Errorf("%s: includes nest more than %d deep: one includes itself", from, maxIncludes)
	}
	merged := map[string]any{}
	for _, pattern := range patterns {
		if !filepath.IsAbs(pattern) {
			pattern = filepath.Join(filepath.Dir(from), pattern)
		}
		matches, err := filepath.Glob(pattern)
		if err != nil {
			return nil, fmt.Errorf("%s includes %q: %w", from, pattern, err)
		}
		slices.Sort(matches)
		for _, file := range matches {
			opts, err := c.readFile(file)
			if err != nil {
				return nil, err
			}
			more, err := c.readIncludes(asStrings(opts["include"]), file, depth+1)
			if err != nil {
				return nil, err
			}
			maps.Copy(opts, more)
			mergeOptions(merged, opts)
		}
	}
	return merged, nil
}

// mergeOptions lays src over dst as salt.utils.dictupdate does: dictionaries are merged, lists
// united, everything else replaced.
func mergeOptions(dst, src map[string]any) {
	for key, value := range src {
		switch value := value.(type) {
		case map[string]any:
			if into, ok := dst[key].(map[string]any); ok {
				mergeOptions(into, value)
				continue
			}
		case []any:
			if into, ok := dst[key].([]any); ok {
				for _, v := range value {
					if !slices.ContainsFunc(into, func(have any) bool { return fmt.Sprint(have) == fmt.Sprint(v) }) {
						into = append(into, v)
					}
				}
				dst[key] = into
				continue
			}
		}
		dst[key] = value
	}
}

func (c *saltConfig) readFile(file string) (map[string]any, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	c.files = append(c.files, file)
	var document yaml.Node
	if err := yaml.Unmarshal(data, &document); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	opts := map[string]any{}
	if len(document.Content) == 0 {
		return opts, nil
	}
	root := document.Content[0]
	if root.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("%s: %w", file, errors.New("it is no mapping of options"))
	}
	for i := 0; i+1 < len(root.Content); i += 2 {
		key := root.Content[i].Value
		if _, there := opts[key]; there {
			c.twice = append(c.twice, key+" in "+file)
		}
		var value any
		if err := root.Content[i+1].Decode(&value); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", file, key, err)
		}
		opts[key] = value
	}
	return opts, nil
}

// str is an option that is text, or fallback where it is not set.
func (c *saltConfig) str(key, fallback string) string {
	if s, ok := c.opts[key].(string); ok && s != "" {
		return s
	}
	return fallback
}

// ours is an option of the returner: nested before flat.
func (c *saltConfig) ours(key string) string {
	if nested, ok := c.opts["saltern"].(map[string]any); ok {
		if s, ok := nested[key].(string); ok && s != "" {
			return s
		}
	}
	return c.str("saltern."+key, "")
}

// extensionModules is the folder into which Salt synchronizes modules. Salt's default for it does
// not follow cachedir; an absolute path is put under root_dir.
func (c *saltConfig) extensionModules() string {
	dir, set := c.opts["extension_modules"].(string)
	switch {
	case !set:
		dir = filepath.Join("/var/cache/salt", c.role, "extmods")
	case dir == "":
		dir = filepath.Join(c.str("cachedir", filepath.Join("/var/cache/salt", c.role)), "extmods")
	}
	return c.rooted(dir)
}

// rooted puts a path under root_dir, unless it is there already.
func (c *saltConfig) rooted(path string) string {
	root := filepath.Clean(c.str("root_dir", "/"))
	if rel, err := filepath.Rel(root, path); err == nil && filepath.IsLocal(rel) {
		return filepath.Clean(path)
	}
	return filepath.Join(root, path)
}

// fileRoots are the folders that the master serves, of all environments.
func (c *saltConfig) fileRoots() []string {
	roots, ok := c.opts["file_roots"].(map[string]any)
	if !ok {
		return []string{"/srv/salt", "/srv/spm/salt"}
	}
	var dirs []string
	for _, env := range slices.Sorted(maps.Keys(roots)) {
		dirs = append(dirs, asStrings(roots[env])...)
	}
	return dirs
}

// asStrings is a list of text, or text alone, as a list.
func asStrings(v any) []string {
	switch v := v.(type) {
	case string:
		if v == "" {
			return nil
		}
		return []string{v}
	case []any:
		var out []string
		for _, e := range v {
			out = append(out, fmt.Sprint(e))
		}
		return out
	default:
		return nil
	}
}
