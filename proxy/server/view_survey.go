package server

import (
	"bytes"
)

// survey walks through a packed value once. It says of each map that has fewer than depth containers
// around it, in the order in which they begin, whether the map can be a JSON object: all keys are
// text that JSON can hold, none is there twice. whole is false where b is not exactly one value.
//
// Without it the view would have to look at all keys of a map before it writes the first, which
// takes quadratic time where maps are nested.
func survey(b []byte, depth int) (plain []bool, whole bool) {
	s := surveyor{depth: depth}
	s.open = append(s.open, level{left: 1, plain: -1})
	pos := 0
	for len(s.open) > 0 {
		head, body, elements, container, short := element(b, pos)
		if short || head == 0 || body > len(b)-pos-head {
			return nil, false
		}
		s.element(b[pos:pos+head+body], elements, container)
		pos += head + body
	}
	return s.plain, pos == len(b)
}

// level is a container that is being walked through.
type level struct {
	left  uint64 // elements still to come, keys and values
	plain int    // index in surveyor.plain; -1 for what is no map, or too deep
	keys  int    // where its keys begin in surveyor.keys
	seen  map[string]struct{}
}

// surveyor holds the containers around the current element and the keys of those that are maps.
type surveyor struct {
	depth int
	plain []bool
	open  []level
	keys  [][]byte
}

// element takes the head and body of the next element.
func (s *surveyor) element(e []byte, elements uint64, container bool) {
	top := &s.open[len(s.open)-1]
	if top.plain >= 0 && top.left%2 == 0 && s.plain[top.plain] {
		s.plain[top.plain] = s.goodKey(top, e)
	}
	top.left--
	if container && (elements > 0 || isMapLead(e[0])) {
		s.descend(e[0], elements)
	}
	for len(s.open) > 0 && s.open[len(s.open)-1].left == 0 {
		s.keys = s.keys[:s.open[len(s.open)-1].keys]
		s.open = s.open[:len(s.open)-1]
	}
}

func (s *surveyor) descend(lead byte, elements uint64) {
	l := level{left: elements, plain: -1, keys: len(s.keys)}
	if isMapLead(lead) && len(s.open) <= s.depth {
		l.plain = len(s.plain)
		s.plain = append(s.plain, true)
	}
	s.open = append(s.open, l)
}

func isMapLead(lead byte) bool { return lead&0xf0 == 0x80 || lead == 0xde || lead == 0xdf }

// fewKeys is up to how many keys it is faster to compare them all than to hash them.
const fewKeys = 16

// goodKey says whether a key is text, and none of the map's keys before it.
func (s *surveyor) goodKey(l *level, e []byte) bool {
	text, isText := textOf(e)
	if !isText || !jsonText(text) {
		return false
	}
	before := s.keys[l.keys:]
	s.keys = append(s.keys, text)
	if len(before) < fewKeys {
		for _, k := range before {
			if bytes.Equal(k, text) {
				return false
			}
		}
		return true
	}
	if l.seen == nil {
		l.seen = make(map[string]struct{}, 2*fewKeys)
		for _, k := range before {
			l.seen[string(k)] = struct{}{}
		}
	}
	_, twice := l.seen[string(text)]
	l.seen[string(text)] = struct{}{}
	return !twice
}

// textOf is the content of a str element.
func textOf(e []byte) (text []byte, isText bool) {
	switch lead := e[0]; {
	case lead&0xe0 == 0xa0:
		return e[1:], true
	case lead == 0xd9:
		return e[2:], true
	case lead == 0xda:
		return e[3:], true
	case lead == 0xdb:
		return e[5:], true
	default:
		return nil, false
	}
}
