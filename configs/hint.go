package configs

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// join makes one error of all faults, in the order of their lines; nil when there are none.
func join(file string, faults []*Fault) error {
	slices.SortStableFunc(faults, func(a, b *Fault) int { return cmp.Compare(a.Line, b.Line) })
	errs := make([]error, len(faults))
	for i, f := range faults {
		f.File = file
		errs[i] = f
	}
	return errors.Join(errs...)
}

// Keys are all keys of the configuration, dotted, in the order of the struct; sections are not
// among them.
func Keys() []string { return keys(reflect.TypeFor[Config](), "") }

func keys(t reflect.Type, section string) []string {
	var all []string
	for i := range t.NumField() {
		f := t.Field(i)
		path := joinKey(section, f.Tag.Get("yaml"))
		if f.Type.Kind() == reflect.Struct {
			all = append(all, keys(f.Type, path)...)
		} else {
			all = append(all, path)
		}
	}
	return all
}

// hint says which key was meant by an unknown one, if that can be told: a key that is spelled almost
// the same, or the same key in another section.
func hint(unknown string) string {
	unknown = strings.ToLower(strings.ReplaceAll(unknown, "_", "-"))
	best, least := "", len(unknown)/3+1
	for _, key := range candidates() {
		d := distance(unknown, key)
		if last(key) == last(unknown) {
			d = min(d, 1)
		}
		if d < least {
			best, least = key, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %s?", best)
}

// candidates are all keys and sections.
func candidates() []string {
	var all []string
	for _, key := range Keys() {
		if section, _, found := strings.Cut(key, "."); found && !slices.Contains(all, section) {
			all = append(all, section)
		}
		all = append(all, key)
	}
	return all
}

func last(key string) string { return key[strings.LastIndexByte(key, '.')+1:] }

// distance is Levenshtein's: how many characters to insert, delete or replace.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			d := diagonal
			if a[i] != b[j] {
				d++
			}
			diagonal = row[j+1]
			row[j+1] = min(d, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
