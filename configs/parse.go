package configs

import (
	"bytes"
	"encoding"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// Fault is one thing that is wrong with a configuration. Load and Parse report all of them, joined
// as errors.Join does, in the order of their lines.
type Fault struct {
	File    string // empty where there is none
	Line    int    // 0 where it is not known
	Key     string // dotted: limits.max-payload; empty for the file as a whole
	Message string
}

// Error is the fault on one line: `saltern.yaml:12: limits.max-payload: …`.
func (f *Fault) Error() string {
	s := f.Message
	if f.Key != "" {
		s = f.Key + ": " + s
	}
	switch {
	case f.File != "" && f.Line > 0:
		s = fmt.Sprintf("%s:%d: %s", f.File, f.Line, s)
	case f.File != "":
		s = f.File + ": " + s
	case f.Line > 0:
		s = fmt.Sprintf("line %d: %s", f.Line, s)
	}
	return s
}

// Load reads a file over the defaults and validates it.
func Load(path string) (*Config, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	return parse(path, text)
}

// Parse reads YAML over the defaults and validates it. A key without a value keeps its default.
func Parse(text []byte) (*Config, error) { return parse("", text) }

func parse(file string, text []byte) (*Config, error) {
	r := reader{lines: make(map[string]int)}
	c := Default()
	if root := r.root(text); root != nil {
		r.value(reflect.ValueOf(c).Elem(), root, "")
	}
	// Keys that could not be read have been reported; their defaults are right.
	for _, f := range c.faults() {
		r.fault(r.lines[f.Key], f.Key, "%s", f.Message)
	}
	return c, join(file, r.faults)
}

// reader fills a Config from YAML nodes and collects what is wrong.
type reader struct {
	lines  map[string]int // of the keys in the file
	faults []*Fault
}

func (r *reader) fault(line int, key, format string, args ...any) {
	r.faults = append(r.faults, &Fault{Line: line, Key: key, Message: fmt.Sprintf(format, args...)})
}

// root gives the one document's top node; nil where there is none.
func (r *reader) root(text []byte) *yaml.Node {
	d := yaml.NewDecoder(bytes.NewReader(text))
	var doc, more yaml.Node
	if err := d.Decode(&doc); errors.Is(err, io.EOF) {
		return nil
	} else if err != nil {
		r.fault(0, "", "no YAML: %v", err)
		return nil
	}
	if err := d.Decode(&more); !errors.Is(err, io.EOF) {
		r.fault(more.Line, "", "a second YAML document: one is read")
	}
	return doc.Content[0]
}

// value reads a node into a field. Lines are noted for the faults that validation finds.
func (r *reader) value(v reflect.Value, n *yaml.Node, key string) {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if key != "" {
		r.lines[key] = n.Line
	}
	if n.Tag == "!!null" {
		return
	}
	switch {
	case v.Kind() == reflect.Struct:
		r.section(v, n, key)
	case v.Kind() == reflect.Slice:
		r.list(v, n, key)
	case n.Kind != yaml.ScalarNode:
		r.fault(n.Line, key, "a single value is needed")
	default:
		if err := setScalar(v, n.Value); err != nil {
			r.fault(n.Line, key, "%v", err)
		}
	}
}

// section reads a mapping into a struct.
func (r *reader) section(v reflect.Value, n *yaml.Node, key string) {
	if n.Kind != yaml.MappingNode {
		r.fault(n.Line, key, "keys with values are needed")
		return
	}
	seen := make(map[string]bool)
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, line := n.Content[i].Value, n.Content[i].Line
		path := joinKey(key, name)
		field, known := fieldOf(v, name)
		switch {
		case !known:
			r.fault(line, path, "unknown key%s", hint(path))
		case seen[name]:
			r.fault(line, path, "the key is there twice")
		default:
			r.value(field, n.Content[i+1], path)
		}
		seen[name] = true
	}
}

// list reads a sequence, or a single value as a sequence of one.
func (r *reader) list(v reflect.Value, n *yaml.Node, key string) {
	items := n.Content
	if n.Kind == yaml.ScalarNode {
		items = []*yaml.Node{n}
	} else if n.Kind != yaml.SequenceNode {
		r.fault(n.Line, key, "a list is needed")
		return
	}
	if len(items) == 0 {
		v.SetZero()
		return
	}
	out := reflect.MakeSlice(v.Type(), len(items), len(items))
	for i, item := range items {
		r.value(out.Index(i), item, fmt.Sprintf("%s[%d]", key, i))
	}
	v.Set(out)
}

func setScalar(v reflect.Value, text string) error {
	if u, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		return u.UnmarshalText([]byte(text))
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Int:
		n, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("%q is no whole number", text)
		}
		v.SetInt(int64(n))
	case reflect.Bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return fmt.Errorf("%q is neither true nor false", text)
		}
		v.SetBool(b)
	case reflect.Float64:
		f, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return fmt.Errorf("%q is no number", text)
		}
		v.SetFloat(f)
	default:
		return fmt.Errorf("configs: no way to read a %s", v.Type())
	}
	return nil
}

// fieldOf gives the field of a struct whose yaml tag is name.
func fieldOf(v reflect.Value, name string) (reflect.Value, bool) {
	for i := range v.NumField() {
		if v.Type().Field(i).Tag.Get("yaml") == name {
			return v.Field(i), true
		}
	}
	return reflect.Value{}, false
}

func joinKey(section, name string) string {
	if section == "" {
		return name
	}
	return section + "." + name
}
