package config

import (
	"encoding"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"sort"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/mscclpp-go/mscclpp/internal/onfirstuse"
	"github.com/mscclpp-go/mscclpp/internal/suggest"
)

// checker turns the raw tree of one layer into a tree of typed values, and
// collects what is wrong with it. Text layers (environment, flags) hold strings,
// which it parses; files must have the right types already.
type checker struct {
	text  bool
	found []problem
	leafs [][]string // paths of all values, for their origin
}

// problem is one mistake of a layer and the path at which it stands.
type problem struct {
	path []string
	text string
}

func (c *checker) problem(path []string, format string, args ...any) {
	c.found = append(c.found, problem{slices.Clone(path), fmt.Sprintf(format, args...)})
}

// names of transports and plugins: they become parts of file names and of
// environment variables.
var validName = onfirstuse.Regexp(`^[a-z][a-z0-9]*(-[a-z0-9]+)*$`)

func (c *checker) value(n *node, raw any, path []string) any {
	if s, ok := raw.(string); ok && c.text && n.kind != nodeLeaf {
		// A whole section or list in one variable: YAML in flow style.
		var parsed any
		if err := yaml.Unmarshal([]byte(s), &parsed); err != nil {
			c.problem(path, "%s: expected YAML in braces: %v", dotted(path), err)
			return nil
		}
		sub := checker{}
		v := sub.value(n, parsed, path)
		c.found, c.leafs = append(c.found, sub.found...), append(c.leafs, sub.leafs...)
		return v
	}
	switch n.kind {
	case nodeStruct:
		return c.section(n, raw, path)
	case nodeMap:
		m, ok := c.table(raw, path, "a section with one entry per name")
		if !ok {
			return nil
		}
		out := make(map[string]any, len(m))
		for _, name := range sorted(m) {
			if !validName().MatchString(name) {
				c.problem(append(path, name), "%s: name %q: expected lower-case letters, digits and single hyphens", dotted(path), name)
				continue
			}
			out[name] = c.value(n.elem, m[name], append(path, name))
		}
		return out
	case nodeList:
		list, ok := raw.([]any)
		if !ok {
			c.problem(path, "%s: expected a list, found %s", dotted(path), kindOf(raw))
			return nil
		}
		out := make([]any, len(list))
		sub := checker{}
		for i, e := range list {
			out[i] = sub.section(n.elem, e, append(path, strconv.Itoa(i)))
		}
		c.found = append(c.found, sub.found...)
		c.leafs = append(c.leafs, slices.Clone(path))
		return out
	case nodeOpaque:
		return c.opaque(raw, path, true)
	}
	return c.leaf(n, raw, path)
}

func (c *checker) section(n *node, raw any, path []string) any {
	m, ok := c.table(raw, path, "a section with the keys "+strings.Join(n.names, ", "))
	if !ok {
		return nil
	}
	out := make(map[string]any, len(m))
	for _, name := range sorted(m) {
		here := append(slices.Clone(path), name)
		child := n.children[name]
		if child == nil {
			c.problem(here, "unknown key %q%s", dotted(here), suggest.Hint(nearestKey(schema(), n, dotted(path), name)))
			continue
		}
		if m[name] == nil {
			continue // "key:" with nothing after it keeps the layer below
		}
		if v := c.value(child, m[name], here); v != nil {
			out[name] = v
		}
	}
	return out
}

// table expects a map with string keys.
func (c *checker) table(raw any, path []string, want string) (map[string]any, bool) {
	if m, ok := raw.(map[string]any); ok {
		return m, true
	}
	where := dotted(path)
	if where == "" {
		where = "the file"
	}
	c.problem(path, "%s: expected %s, found %s", where, want, kindOf(raw))
	return nil, false
}

// opaque copies the options of a transport. Only their outer shape is checked:
// what they mean is the transport's business.
func (c *checker) opaque(raw any, path []string, top bool) any {
	if top {
		if _, ok := c.table(raw, path, "a section with the options of the transport"); !ok {
			return nil
		}
	}
	switch v := raw.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for _, name := range sorted(v) {
			out[name] = c.opaque(v[name], append(slices.Clone(path), name), false)
		}
		return out
	case string:
		c.leafs = append(c.leafs, slices.Clone(path))
		if c.text {
			return scalar(v)
		}
		return v
	}
	c.leafs = append(c.leafs, slices.Clone(path))
	return raw
}

// scalar guesses the type of an option that came as text, by the rules of YAML, so
// that "512" reaches a transport as a number.
func scalar(text string) any {
	var v any
	if err := yaml.Unmarshal([]byte(text), &v); err != nil || v == nil {
		return text
	}
	return v
}

func (c *checker) leaf(n *node, raw any, path []string) any {
	out := reflect.New(n.typ)
	if err := c.decode(out.Elem(), raw); err != nil {
		if isSecret(dotted(path)) {
			c.problem(path, "%s: not a legal value", dotted(path))
		} else {
			c.problem(path, "%s: %v", dotted(path), err)
		}
		return nil
	}
	if legal := choices[n.key]; legal != nil && !slices.Contains(legal, out.Elem().String()) {
		c.problem(path, "%s: %q%s: expected %s", dotted(path), out.Elem().String(),
			suggest.Hint(suggest.Name(out.Elem().String(), legal)), listed(legal))
		return nil
	}
	c.leafs = append(c.leafs, slices.Clone(path))
	return out.Elem().Interface()
}

// decode sets a leaf from what a parser produced.
func (c *checker) decode(to reflect.Value, raw any) error {
	if s, ok := raw.(string); ok {
		if u, ok := to.Addr().Interface().(encoding.TextUnmarshaler); ok {
			return u.UnmarshalText([]byte(s))
		}
		if c.text {
			return decodeText(to, s)
		}
	}
	switch to.Kind() {
	case reflect.Pointer:
		to.Set(reflect.New(to.Type().Elem()))
		return c.decode(to.Elem(), raw)
	case reflect.String:
		if s, ok := raw.(string); ok {
			to.SetString(s)
			return nil
		}
		return fmt.Errorf("expected text, found %s", kindOf(raw))
	case reflect.Bool:
		if b, ok := raw.(bool); ok {
			to.SetBool(b)
			return nil
		}
		return fmt.Errorf("expected true or false, found %s", kindOf(raw))
	case reflect.Slice:
		list, ok := raw.([]any)
		if !ok {
			return fmt.Errorf("expected a list, found %s", kindOf(raw))
		}
		out := reflect.MakeSlice(to.Type(), len(list), len(list))
		for i, e := range list {
			if err := c.decode(out.Index(i), e); err != nil {
				return fmt.Errorf("element %d of the list: %w", i+1, err)
			}
		}
		to.Set(out)
		return nil
	}
	if _, ok := to.Addr().Interface().(*Duration); ok {
		return fmt.Errorf("expected a duration with its unit, such as 30s, found %s", kindOf(raw))
	}
	n, ok := integer(raw)
	switch {
	case tooLarge(raw):
		return fmt.Errorf("%s is too large: expected a whole number of at most %d", kindOf(raw), math.MaxInt64)
	case !ok:
		return fmt.Errorf("expected a whole number, found %s", kindOf(raw))
	case n < 0:
		return fmt.Errorf("expected a number that is not negative, found %s", kindOf(raw))
	}
	if to.CanUint() {
		to.SetUint(uint64(n))
	} else {
		to.SetInt(n)
	}
	return nil
}

// decodeText sets a leaf that is not a TextUnmarshaler from a variable or flag.
func decodeText(to reflect.Value, s string) error {
	switch to.Kind() {
	case reflect.String:
		to.SetString(s)
	case reflect.Bool:
		b, err := strconv.ParseBool(s)
		if err != nil {
			return fmt.Errorf("%q: expected true or false", s)
		}
		to.SetBool(b)
	case reflect.Slice: // of strings
		var list []string
		for _, e := range strings.Split(s, ",") {
			if e = strings.TrimSpace(e); e != "" {
				list = append(list, e)
			}
		}
		to.Set(reflect.ValueOf(list))
	default:
		n, err := strconv.ParseInt(s, 10, 64)
		switch {
		case errors.Is(err, strconv.ErrRange) && n > 0:
			return fmt.Errorf("%q is too large: expected a whole number of at most %d", s, math.MaxInt64)
		case err != nil || n < 0:
			return fmt.Errorf("%q: expected a number that is not negative", s)
		}
		to.SetInt(n)
	}
	return nil
}

// tooLarge reports whether a file has a whole number that fits no integer. YAML makes a
// floating-point number of one that does not fit 64 bits.
func tooLarge(raw any) bool {
	switch v := raw.(type) {
	case uint64:
		return v > math.MaxInt64
	case float64:
		return v > math.MaxInt64
	}
	return false
}

func integer(raw any) (int64, bool) {
	switch v := raw.(type) {
	case int:
		return int64(v), true
	case int64:
		return v, true
	case uint64:
		return int64(v), v < 1<<63
	}
	return 0, false
}

// kindOf names a value the way somebody who wrote a file thinks of it.
func kindOf(raw any) string {
	switch v := raw.(type) {
	case nil:
		return "nothing"
	case string:
		return fmt.Sprintf("the text %q", v)
	case map[string]any:
		return "a section"
	case map[any]any:
		return "a section with keys that are not text"
	case []any:
		return "a list"
	}
	return fmt.Sprintf("%v", raw)
}

// listed prints legal values; an empty one is legal by leaving the key out.
func listed(words []string) string {
	var shown []string
	for _, w := range words {
		if w != "" {
			shown = append(shown, w)
		}
	}
	if len(shown) == 1 {
		return shown[0]
	}
	return strings.Join(shown[:len(shown)-1], ", ") + " or " + shown[len(shown)-1]
}

func sorted(m map[string]any) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

func dotted(path []string) string { return strings.Join(path, ".") }
