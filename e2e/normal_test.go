package e2e

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// measured are the keys whose values are never the same twice, and __pub_ret, which names the external job cache.
var measured = []string{"start_time", "duration", "__jid__", "_stamp", "ts", "pid", "__pub_ret", "__pub_pid"}

var anyJid = regexp.MustCompile(`^\d{20}(_\d+)?$`)

// normal gives an answer without what cannot be the same on two masters: ids of jobs become their labels, measured
// values and times that belong to an unlabelled job a constant. The times themselves are tested by startTime.
func (s *side) normal(v any) any {
	s.mu.Lock()
	labels := map[string]string{}
	for label, jid := range s.jids {
		labels[jid] = label
	}
	s.mu.Unlock()
	return normalise(v, labels)
}

func normalise(v any, labels map[string]string) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for key, value := range v {
			switch {
			case slices.Contains(measured, key):
				value = "measured"
			case key == "StartTime" || key == "EndTime":
				value = "a time"
			case key == "Target" && oneMinion(value):
				// The last chunk of a batch, which can be any.
				value = "a chunk of one minion"
			}
			if label, ok := labels[key]; ok {
				key = label
			}
			out[key] = normalise(value, labels)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, value := range v {
			out[i] = normalise(value, labels)
		}
		return out
	case string:
		if label, ok := labels[v]; ok {
			return label
		}
		if anyJid.MatchString(v) {
			return "a jid"
		}
		return v
	}
	return v
}

func oneMinion(target any) bool {
	list, ok := target.([]any)
	return ok && len(list) == 1
}

// plain reduces the results of a job to what local_cache keeps of a return. Saltern keeps what the minion sent.
func plain(results any) any {
	out := map[string]any{}
	fields, ok := results.(map[string]any)
	if !ok {
		return results
	}
	for id, result := range fields {
		kept := map[string]any{}
		whole, ok := result.(map[string]any)
		if !ok {
			return results
		}
		for _, key := range []string{"return", "retcode", "success", "out"} {
			if value, ok := whole[key]; ok {
				kept[key] = value
			}
		}
		out[id] = kept
	}
	return out
}

// without removes keys from all maps in an answer.
func without(v any, remove ...string) any {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			if slices.Contains(remove, key) {
				delete(v, key)
				continue
			}
			without(value, remove...)
		}
	case []any:
		for _, value := range v {
			without(value, remove...)
		}
	}
	return v
}

// same fails unless both answers are equal after normalising, and shows where they part.
func same(t *testing.T, what string, ours, stock any) {
	t.Helper()
	if !reflect.DeepEqual(ours, stock) {
		t.Errorf("%s: Saltern and local_cache answer differently:\n%s", what, strings.Join(differences("", ours, stock), "\n"))
	}
}

func differences(at string, a, b any) []string {
	left, ok1 := a.(map[string]any)
	right, ok2 := b.(map[string]any)
	if !ok1 || !ok2 {
		if reflect.DeepEqual(a, b) {
			return nil
		}
		return []string{fmt.Sprintf("%s: %.600s / %.600s", at, text(a), text(b))}
	}
	var found []string
	for key, value := range left {
		if _, ok := right[key]; !ok {
			found = append(found, fmt.Sprintf("%s[%q]: %.600s / absent", at, key, text(value)))
			continue
		}
		found = append(found, differences(fmt.Sprintf("%s[%q]", at, key), value, right[key])...)
	}
	for key, value := range right {
		if _, ok := left[key]; !ok {
			found = append(found, fmt.Sprintf("%s[%q]: absent / %.600s", at, key, text(value)))
		}
	}
	slices.Sort(found)
	return found
}

func text(v any) string {
	out, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(out)
}

// startTime is a jid's time as Salt prints it.
func startTime(jid string) string {
	at, err := time.Parse("20060102150405.000000", jid[:14]+"."+jid[14:20])
	if err != nil {
		return err.Error()
	}
	return at.Format("2006, Jan 02 15:04:05.000000")
}

// dig follows keys through maps and gives nil where one is missing.
func dig(v any, keys ...string) any {
	for _, key := range keys {
		fields, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = fields[key]
	}
	return v
}

// keys of a map, sorted; nil of anything else.
func keys(v any) []string {
	fields, _ := v.(map[string]any)
	var out []string
	for key := range fields {
		out = append(out, key)
	}
	slices.Sort(out)
	return out
}
