package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// result is what a minion returned, for people: text as it is, a state run as a summary with the
// states that did not succeed, everything else as indented JSON. It may have several lines, all of
// them harmless.
func result(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil && len(raw) > 0 && raw[0] == '"' {
		return harmlessLines(s)
	}
	if states, ok := stateRun(raw); ok {
		return summarize(states)
	}
	var b bytes.Buffer
	if err := json.Indent(&b, raw, "", "  "); err != nil {
		return harmlessLines(string(raw))
	}
	return harmlessLines(b.String())
}

// state is one state of a state run.
type state struct {
	ID      string `json:"__id__"`
	Order   *int   `json:"__run_num__"`
	Result  *bool
	Comment any
	Changes json.RawMessage

	key string // module_|-id_|-name_|-function
}

// stateRun gives the states of a state run in the order in which they ran. It is one when every key
// has the four parts that Salt makes it of.
func stateRun(raw json.RawMessage) ([]state, bool) {
	var byKey map[string]json.RawMessage
	if json.Unmarshal(raw, &byKey) != nil || len(byKey) == 0 {
		return nil, false
	}
	states := make([]state, 0, len(byKey))
	for key, value := range byKey {
		s := state{key: key}
		if strings.Count(key, "_|-") < 3 || json.Unmarshal(value, &s) != nil {
			return nil, false
		}
		states = append(states, s)
	}
	slices.SortFunc(states, func(a, b state) int {
		if a.Order != nil && b.Order != nil && *a.Order != *b.Order {
			return cmp.Compare(*a.Order, *b.Order)
		}
		return cmp.Compare(a.key, b.key)
	})
	return states, true
}

// summarize counts states and shows those whose result is not True.
func summarize(states []state) string {
	var succeeded, changed, failed, undecided int
	var b strings.Builder
	for _, s := range states {
		if hasChanges(s.Changes) {
			changed++
		}
		switch {
		case s.Result == nil: // test=True: it would change something
			undecided++
			continue
		case *s.Result:
			succeeded++
			continue
		}
		failed++
		parts := strings.Split(s.key, "_|-")
		name := parts[0] + "." + parts[len(parts)-1] + " " + cmp.Or(s.ID, parts[1])
		comment, _, _ := strings.Cut(strings.TrimSpace(fmt.Sprint(s.Comment)), "\n")
		fmt.Fprintf(&b, "failed: %s: %s\n", harmless(name), harmless(comment))
	}
	line := fmt.Sprintf("%d states: %d succeeded, %d changed something, %d failed",
		len(states), succeeded, changed, failed)
	if undecided > 0 {
		line += fmt.Sprintf(", %d would change something", undecided)
	}
	return line + "\n" + b.String()
}

func hasChanges(raw json.RawMessage) bool {
	s := string(bytes.TrimSpace(raw))
	return s != "" && s != "{}" && s != "null" && s != "[]"
}
