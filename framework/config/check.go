package config

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sort"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/mscclpp-go/mscclpp/internal/onfirstuse"
	"github.com/mscclpp-go/mscclpp/internal/strict"
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
			c.problem(path, "%s: expected a list, found %s", dotted(path), strict.Kind(raw))
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
	c.problem(path, "%s: expected %s, found %s", where, want, strict.Kind(raw))
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
	if err := c.decoder().Set(out.Elem(), raw); err != nil {
		var wrong *strict.Error
		switch {
		case isSecret(dotted(path)):
			c.problem(path, "%s: not a legal value", dotted(path))
		case errors.As(err, &wrong):
			c.problem(path, "%s%s: %s", dotted(path), wrong.Key, wrong.Reason)
		default:
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

// decoder sets leaves. No key has a use for negative numbers, and a duration has a unit.
func (c *checker) decoder() strict.Decoder {
	return strict.Decoder{
		Text: c.text, Natural: true,
		TextOnly: map[reflect.Type]string{reflect.TypeFor[Duration](): "a duration with its unit, such as 30s"},
	}
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
