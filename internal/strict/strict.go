// Package strict sets Go values from what parsers of JSON, YAML and TOML produce, and from
// text. A value of another type, a number that does not fit and an unknown key are errors
// that carry the key.
package strict

import (
	"encoding"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Decoder says what is accepted.
type Decoder struct {
	Text     bool                                          // text for every scalar, and separated by commas for lists
	Natural  bool                                          // no negative numbers
	TextOnly map[reflect.Type]string                       // types that numbers do not set, with what is expected
	Fields   func(t reflect.Type) []Field                  // keys of a struct
	Unknown  func(key, name string, known []string) string // the error for a key that is none of them
}

// Field is a key of a struct.
type Field struct {
	Name  string
	Index []int // as reflect.Value.FieldByIndex takes it
}

// Error is one mistake.
type Error struct {
	Key    string // dotted, list[0] for elements; "" for the value itself
	Reason string // the expected value
	Bare   bool   // the reason names the key
}

// Error implements error.
func (e *Error) Error() string {
	if e.Key == "" || e.Bare {
		return e.Reason
	}
	return e.Key + ": " + e.Reason
}

var (
	durationType = reflect.TypeFor[time.Duration]()
	durationText = "a duration with its unit, such as 20us, 30s or 1m30s"
)

// Set sets a value; nil leaves it as it is. An error is an *Error.
func (d Decoder) Set(to reflect.Value, raw any) error { return d.set(to, raw, "") }

func (d Decoder) set(to reflect.Value, raw any, key string) error {
	if raw == nil {
		return nil
	}
	if to.Kind() == reflect.Pointer {
		p := reflect.New(to.Type().Elem())
		if err := d.set(p.Elem(), raw, key); err != nil {
			return err
		}
		to.Set(p)
		return nil
	}
	if u, ok := to.Addr().Interface().(encoding.TextUnmarshaler); ok {
		if done, err := d.unmarshal(u, to, raw, key); done || err != nil {
			return err
		}
	}
	switch to.Kind() {
	case reflect.Struct:
		return d.table(to, raw, key)
	case reflect.Map:
		return d.dictionary(to, raw, key)
	case reflect.Slice:
		return d.list(to, raw, key)
	case reflect.Interface:
		if to.NumMethod() == 0 {
			to.Set(reflect.ValueOf(raw))
			return nil
		}
	}
	return d.scalar(to, raw, key)
}

// unmarshal sets a type that reads text, unless raw is a number that sets it as well.
func (d Decoder) unmarshal(u encoding.TextUnmarshaler, to reflect.Value, raw any, key string) (done bool, err error) {
	text, isText := raw.(string)
	if s, ok := Text(raw); ok && d.Text {
		text, isText = s, true
	}
	switch {
	case isText:
		if err := u.UnmarshalText([]byte(text)); err != nil {
			return true, &Error{Key: key, Reason: err.Error()}
		}
		return true, nil
	case d.TextOnly[to.Type()] != "":
		return true, wrong(key, d.TextOnly[to.Type()], raw)
	case to.CanInt() || to.CanUint() || to.CanFloat():
		return false, nil
	}
	return true, wrong(key, "text", raw)
}

func (d Decoder) table(to reflect.Value, raw any, key string) error {
	tree, ok := raw.(map[string]any)
	if !ok || d.Fields == nil {
		return wrong(key, "a table", raw)
	}
	fields := d.Fields(to.Type())
	known := make([]string, len(fields))
	for i, f := range fields {
		known[i] = f.Name
	}
	for _, name := range slices.Sorted(maps.Keys(tree)) {
		at := slices.Index(known, name)
		if at < 0 {
			return &Error{Key: join(key, name), Reason: d.Unknown(key, name, known), Bare: true}
		}
		if err := d.set(to.FieldByIndex(fields[at].Index), tree[name], join(key, name)); err != nil {
			return err
		}
	}
	return nil
}

func (d Decoder) dictionary(to reflect.Value, raw any, key string) error {
	tree, ok := raw.(map[string]any)
	if !ok || to.Type().Key().Kind() != reflect.String {
		return wrong(key, "a table", raw)
	}
	out := reflect.MakeMapWithSize(to.Type(), len(tree))
	for _, name := range slices.Sorted(maps.Keys(tree)) {
		item := reflect.New(to.Type().Elem()).Elem()
		if err := d.set(item, tree[name], join(key, name)); err != nil {
			return err
		}
		out.SetMapIndex(reflect.ValueOf(name).Convert(to.Type().Key()), item)
	}
	to.Set(out)
	return nil
}

func (d Decoder) list(to reflect.Value, raw any, key string) error {
	items, ok := raw.([]any)
	if s, text := raw.(string); text && d.Text {
		ok = true
		for word := range strings.SplitSeq(s, ",") {
			if word = strings.TrimSpace(word); word != "" {
				items = append(items, word)
			}
		}
	}
	if !ok {
		return wrong(key, "a list", raw)
	}
	out := reflect.MakeSlice(to.Type(), len(items), len(items))
	for i, item := range items {
		if err := d.set(out.Index(i), item, fmt.Sprintf("%s[%d]", key, i)); err != nil {
			return err
		}
	}
	to.Set(out)
	return nil
}

func (d Decoder) scalar(to reflect.Value, raw any, key string) error {
	text, isText := raw.(string)
	switch kind := to.Kind(); {
	case to.Type() == durationType:
		v, err := time.ParseDuration(text)
		if err != nil || !isText {
			return wrong(key, durationText, raw)
		}
		to.SetInt(int64(v))
	case kind == reflect.String:
		if !isText {
			return wrong(key, "text", raw)
		}
		to.SetString(text)
	case kind == reflect.Bool:
		v, ok := raw.(bool)
		if s, scalar := Text(raw); !ok && scalar && d.Text {
			var err error
			v, err = strconv.ParseBool(s)
			ok = err == nil
		}
		if !ok {
			return wrong(key, "true or false", raw)
		}
		to.SetBool(v)
	case to.CanInt() || to.CanUint() || to.CanFloat():
		return d.number(to, raw, key)
	default:
		return &Error{Key: key, Reason: fmt.Sprintf("a value of type %v cannot be set", to.Type())}
	}
	return nil
}

func wrong(key, expected string, raw any) error {
	return &Error{Key: key, Reason: fmt.Sprintf("expected %s, found %s", expected, Kind(raw))}
}

func join(key, name string) string {
	if key == "" {
		return name
	}
	return key + "." + name
}

// Text returns the text of a scalar.
func Text(raw any) (string, bool) {
	switch v := raw.(type) {
	case string:
		return v, true
	case json.Number:
		return v.String(), true
	case bool:
		return strconv.FormatBool(v), true
	case int, int64, uint64, float64:
		return fmt.Sprint(v), true
	}
	return "", false
}

// Kind names the kind of a value in the terms of the file's author.
func Kind(raw any) string {
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
