package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/mscclpp-go/mscclpp/internal/suggest"
)

// scanner walks over a JSON text whose syntax is known to be right, and knows where it is.
type scanner struct {
	data   []byte
	pos    int
	limits Limits
	path   []step

	// target is a path whose line is wanted: locating is a second walk, so that plans carry no lines.
	target string
	line   int
}

// step is one element of a path: a key, or a position in a list.
type step struct {
	key   string
	index int
}

// syntax returns what is wrong with the syntax of a text, with the line.
func syntax(data []byte) error {
	if valid(data) || json.Valid(data) {
		return nil
	}
	var any json.RawMessage
	err := json.Unmarshal(data, &any)
	line := 0
	if wrong := (*json.SyntaxError)(nil); errors.As(err, &wrong) {
		line = lineOf(data, int(min(wrong.Offset, int64(len(data)))))
	}
	return &Error{Line: line, Problem: fmt.Sprintf("this is no JSON: %v", err)}
}

func lineOf(data []byte, pos int) int { return 1 + bytes.Count(data[:pos], []byte{'\n'}) }

func (s *scanner) where() string {
	var b strings.Builder
	for _, e := range s.path {
		if e.key == "" {
			fmt.Fprintf(&b, "[%d]", e.index)
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(e.key)
	}
	return b.String()
}

// fail returns an error about the value that begins at pos.
func (s *scanner) fail(pos int, format string, args ...any) error {
	return &Error{Line: lineOf(s.data, pos), Path: s.where(), Problem: fmt.Sprintf(format, args...)}
}

// next skips white space, and returns the first byte of what follows.
func (s *scanner) next() byte {
	for s.data[s.pos] <= ' ' {
		s.pos++
	}
	return s.data[s.pos]
}

func (s *scanner) push(e step) {
	s.path = append(s.path, e)
	if s.target != "" && s.line == 0 && s.where() == s.target {
		s.next()
		s.line = lineOf(s.data, s.pos)
	}
}

func (s *scanner) pop() { s.path = s.path[:len(s.path)-1] }

// keys are the keys of one kind of object; those that begin with ! are required.
type keys []string

// object reads an object: value is called for each of its values, by the key's position in the list. Keys that are
// unknown, twice there or missing are errors. The result has a bit for each key that is there.
func (s *scanner) object(known keys, value func(key int) error) (seen uint64, err error) {
	if c := s.next(); c != '{' {
		return 0, s.wrong("an object")
	}
	start := s.pos
	s.pos++
	for s.next() != '}' {
		if s.data[s.pos] == ',' {
			s.pos++
			s.next()
		}
		i, at, err := s.key(known)
		if err != nil {
			return 0, err
		}
		if seen&(1<<i) != 0 {
			return 0, s.fail(at, "the key %q is there twice", bare(known[i]))
		}
		seen |= 1 << i
		s.next() // the colon
		s.pos++
		s.next()
		s.push(step{key: bare(known[i])})
		if err := value(i); err != nil {
			return 0, err
		}
		s.pop()
	}
	s.pos++
	for i, k := range known {
		if k[0] == '!' && seen&(1<<i) == 0 {
			return 0, s.fail(start, "the key %q is missing", bare(k))
		}
	}
	return seen, nil
}

func bare(key string) string { return strings.TrimPrefix(key, "!") }

func (s *scanner) key(known keys) (i, at int, err error) {
	at = s.pos
	raw := s.raw()
	for i, k := range known {
		if len(raw) == len(bare(k))+2 && string(raw[1:len(raw)-1]) == bare(k) {
			return i, at, nil
		}
	}
	name := unquoted(raw)
	names := make([]string, len(known))
	for i, k := range known {
		if names[i] = bare(k); names[i] == name {
			return i, at, nil
		}
	}
	return 0, 0, s.fail(at, "unknown key %q%s", cut(name), suggest.Hint(suggest.Name(cut(name), names)))
}

// cut shortens what a message repeats.
func cut(s string) string {
	if len(s) > 40 {
		return s[:40] + "…"
	}
	return s
}

// list reads a list of at most most elements.
func (s *scanner) list(most int, element func() error) error {
	if s.next() != '[' {
		return s.wrong("a list")
	}
	s.pos++
	for n := 0; s.next() != ']'; n++ {
		if s.data[s.pos] == ',' {
			s.pos++
			s.next()
		}
		s.push(step{index: n})
		if n >= most {
			return s.fail(s.pos, "more than %d elements, the limit of this list", most)
		}
		if err := element(); err != nil {
			return err
		}
		s.pop()
	}
	s.pos++
	return nil
}

// raw returns the text of the string, number or word at the position, and goes behind it.
func (s *scanner) raw() []byte {
	start := s.pos
	if s.data[s.pos] == '"' {
		for s.pos++; s.data[s.pos] != '"'; s.pos++ {
			if s.data[s.pos] == '\\' {
				s.pos++
			}
		}
		s.pos++
		return s.data[start:s.pos]
	}
	for s.pos < len(s.data) && !ends(s.data[s.pos]) {
		s.pos++
	}
	return s.data[start:s.pos]
}

// ends reports whether a number or a word does not go on with a byte.
func ends(c byte) bool {
	switch c {
	case ' ', '\t', '\r', '\n', ',', ':', ']', '}':
		return true
	}
	return false
}

func unquoted(raw []byte) string {
	if bytes.IndexByte(raw, '\\') < 0 {
		return strings.ToValidUTF8(string(raw[1:len(raw)-1]), "\ufffd")
	}
	var out string
	if json.Unmarshal(raw, &out) != nil {
		return ""
	}
	return out
}

func (s *scanner) text() (string, error) {
	if s.next() != '"' {
		return "", s.wrong("a string")
	}
	return unquoted(s.raw()), nil
}

// number reads a whole number of least to most.
func (s *scanner) number(least, most int64) (int, error) {
	start, raw, err := s.digits()
	if err != nil {
		return 0, err
	}
	n, ok := small(raw)
	if !ok {
		n, err = strconv.ParseInt(string(raw), 10, 64)
	}
	if err != nil || n < least || n > most {
		return 0, s.fail(start, "%s is out of range: expected %d to %d", cut(string(raw)), least, most)
	}
	return int(n), nil
}

// small is the value of a number that is neither negative nor large.
func small(raw []byte) (n int64, ok bool) {
	const most = 18 // digits of what an int64 holds for certain
	if len(raw) > most || raw[0] == '-' {
		return 0, false
	}
	for _, c := range raw {
		n = 10*n + int64(c-'0')
	}
	return n, true
}

// size reads a size in bytes.
func (s *scanner) size() (uint64, error) {
	start, raw, err := s.digits()
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(string(raw), 10, 64)
	if err != nil {
		return 0, s.fail(start, "%s is out of range: expected 0 to %d", cut(string(raw)), DefaultMaxSize)
	}
	return n, nil
}

func (s *scanner) digits() (start int, raw []byte, err error) {
	if c := s.next(); c != '-' && (c < '0' || c > '9') {
		return 0, nil, s.wrong("a number")
	}
	start = s.pos
	text := s.raw()
	for _, c := range text {
		if c == '.' || c == 'e' || c == 'E' {
			return 0, nil, s.fail(start, "%s is no whole number", cut(string(text)))
		}
	}
	return start, text, nil
}

func (s *scanner) truth() (bool, error) {
	if c := s.next(); c != 't' && c != 'f' {
		return false, s.wrong("true or false")
	}
	return s.raw()[0] == 't', nil
}

// wrong says that the value is of another type than expected.
func (s *scanner) wrong(expected string) error {
	found := map[byte]string{'{': "an object", '[': "a list", '"': "a string", 't': "true", 'f': "false", 'n': "null"}[s.next()]
	if found == "" {
		found = "a number"
	}
	return s.fail(s.pos, "expected %s, found %s", expected, found)
}
