package config

import (
	"encoding"
	"fmt"
	"io"
	"reflect"
	"sort"
	"strings"
	"text/tabwriter"
)

// Value is one key of an effective configuration.
type Value struct {
	Key    string
	Value  string // "(hidden)" for secrets
	Origin Origin

	// Chosen says what the value will be where it leaves the choice to the program, the
	// device or the ranks.
	Chosen string
}

// Values returns all keys in order of declaration, each option of a transport as
// a key of its own.
func (e *Effective) Values() []Value {
	var out []Value
	e.walk(schema(), "", reflect.ValueOf(e.Config), &out)
	return out
}

func (e *Effective) walk(n *node, key string, v reflect.Value, out *[]Value) {
	switch n.kind {
	case nodeStruct:
		for i, name := range n.names {
			e.walk(n.children[name], join(key, name), v.Field(i), out)
		}
	case nodeMap, nodeOpaque:
		names := v.MapKeys()
		sort.Slice(names, func(i, j int) bool { return names[i].String() < names[j].String() })
		for _, name := range names {
			child := v.MapIndex(name)
			here := join(key, name.String())
			if child.Kind() == reflect.Interface {
				child = child.Elem()
			}
			switch {
			case n.kind == nodeMap:
				e.walk(n.elem, here, child, out)
			case child.IsValid() && child.Type() == n.typ:
				e.walk(n, here, child, out)
			default:
				e.put(here, child, out)
			}
		}
	case nodeList:
		e.put(key, v, out)
	default:
		e.put(key, v, out)
	}
}

func (e *Effective) put(key string, v reflect.Value, out *[]Value) {
	text := format(v)
	if isSecret(key) && text != "" {
		text = "(hidden)"
	}
	*out = append(*out, Value{Key: key, Value: text, Origin: e.Origin(key), Chosen: e.chosen(key, text)})
}

// format prints a value as it could be written in a file.
func format(v reflect.Value) string {
	if !v.IsValid() {
		return ""
	}
	if m, ok := v.Interface().(encoding.TextMarshaler); ok {
		if text, err := m.MarshalText(); err == nil {
			return string(text)
		}
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return ""
		}
		return format(v.Elem())
	case reflect.Slice:
		parts := make([]string, v.Len())
		for i := range parts {
			parts[i] = format(v.Index(i))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case reflect.Struct:
		var parts []string
		for i := range v.NumField() {
			if !v.Field(i).IsZero() {
				parts = append(parts, v.Type().Field(i).Tag.Get("config")+": "+format(v.Field(i)))
			}
		}
		return "{" + strings.Join(parts, ", ") + "}"
	}
	return fmt.Sprint(v.Interface())
}

// Print writes the table that `mscclpp-run config` shows.
func (e *Effective) Print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "KEY\tVALUE\tORIGIN")
	for _, v := range e.Values() {
		value := v.Value
		if value == "" {
			value = `""`
		}
		if v.Chosen != "" {
			value += " (" + v.Chosen + ")"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\n", v.Key, value, v.Origin)
	}
	return t.Flush()
}
