package options

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/internal/suggest"
)

// Decode reads a JSON object into a C that starts with its defaults, and validates
// it. A key that C does not have is an error that names the nearest one. Strings
// are accepted for every scalar and, separated by commas, for lists: values of
// environment variables have no other type. All errors are ErrInvalid.
func Decode[C any](data []byte) (C, error) {
	c := defaults[C]()
	tree, err := parse(data)
	if err != nil {
		return c, err
	}
	v := reflect.ValueOf(&c).Elem()
	if v.Kind() != reflect.Struct {
		if len(tree) > 0 {
			return c, fmt.Errorf("%w: this transport has no options", framework.ErrInvalid)
		}
		return c, nil
	}
	if err := table(v, tree, ""); err != nil {
		return c, err
	}
	if check, ok := any(c).(interface{ Validate() error }); ok {
		return c, invalid(check.Validate())
	}
	if check, ok := any(&c).(interface{ Validate() error }); ok {
		return c, invalid(check.Validate())
	}
	return c, nil
}

// invalid gives an error its class, unless it has one.
func invalid(err error) error {
	if err == nil || framework.Class(err) != nil {
		return err
	}
	return fmt.Errorf("%w: options: %w", framework.ErrInvalid, err)
}

func parse(data []byte) (map[string]any, error) {
	tree := map[string]any{}
	if len(bytes.TrimSpace(data)) == 0 {
		return tree, nil
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber() // a float64 would round 1<<53+1
	if err := d.Decode(&tree); err != nil {
		return nil, fmt.Errorf("%w: options: expected a JSON object: %w", framework.ErrInvalid, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: options: expected one JSON object, got more", framework.ErrInvalid)
	}
	return tree, nil
}

func table(v reflect.Value, tree map[string]any, prefix string) error {
	fields := fieldsOf(v.Type())
	known := make([]string, len(fields))
	byName := map[string]field{}
	for i, f := range fields {
		known[i] = f.name
		byName[f.name] = f
	}
	for _, key := range slices.Sorted(maps.Keys(tree)) {
		f, ok := byName[key]
		if !ok {
			return unknown(prefix, key, known)
		}
		if err := set(v.FieldByIndex(f.index), tree[key], prefix+key); err != nil {
			return err
		}
	}
	return nil
}

func unknown(prefix, key string, known []string) error {
	hint := "this transport has no options"
	if near := suggest.Name(key, known); near != "" {
		hint = fmt.Sprintf("did you mean %q?", prefix+near)
	} else if len(known) > 0 {
		hint = "expected one of " + strings.Join(known, " ")
	}
	return fmt.Errorf("%w: unknown option %q: %s", framework.ErrInvalid, prefix+key, hint)
}

// set stores one value of the tree; nil leaves the default.
func set(v reflect.Value, value any, name string) error {
	if value == nil {
		return nil
	}
	wrong := func(expected string, err error) error {
		if err != nil {
			return fmt.Errorf("%w: option %q: expected %s, got %v: %w", framework.ErrInvalid, name, expected, quote(value), err)
		}
		return fmt.Errorf("%w: option %q: expected %s, got %v", framework.ErrInvalid, name, expected, quote(value))
	}
	if v.Kind() == reflect.Pointer {
		p := reflect.New(v.Type().Elem())
		if err := set(p.Elem(), value, name); err != nil {
			return err
		}
		v.Set(p)
		return nil
	}
	if u, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		s, ok := scalar(value)
		if !ok {
			return wrong("a string", nil)
		}
		if err := u.UnmarshalText([]byte(s)); err != nil {
			return wrong("a value of type "+v.Type().String(), err)
		}
		return nil
	}
	switch v.Kind() {
	case reflect.Struct:
		tree, ok := value.(map[string]any)
		if !ok {
			return wrong("a table", nil)
		}
		return table(v, tree, name+".")
	case reflect.Slice:
		return list(v, value, name, wrong)
	case reflect.Map:
		return dictionary(v, value, name, wrong)
	case reflect.Interface:
		if v.NumMethod() == 0 {
			v.Set(reflect.ValueOf(value))
			return nil
		}
	}
	s, ok := scalar(value)
	if !ok {
		return wrong("a "+typeName(v.Type()), nil)
	}
	return fromText(v, s, value, wrong)
}

// fromText sets a scalar from its text.
func fromText(v reflect.Value, s string, value any, wrong func(string, error) error) error {
	_, quoted := value.(string)
	switch kind := v.Kind(); {
	case v.Type() == durationType:
		d, err := time.ParseDuration(s)
		if err != nil || !quoted {
			return wrong(`a duration such as "20us" or "1m30s"`, nil)
		}
		v.SetInt(int64(d))
	case kind == reflect.Bool:
		b, err := strconv.ParseBool(s)
		if err != nil {
			return wrong("true or false", nil)
		}
		v.SetBool(b)
	case v.CanInt():
		n, err := strconv.ParseInt(s, 0, v.Type().Bits())
		if err != nil {
			return wrong(fmt.Sprintf("an integer of %d bits", v.Type().Bits()), nil)
		}
		v.SetInt(n)
	case v.CanUint():
		n, err := strconv.ParseUint(s, 0, v.Type().Bits())
		if err != nil {
			return wrong(fmt.Sprintf("an integer of %d bits, 0 or more", v.Type().Bits()), nil)
		}
		v.SetUint(n)
	case v.CanFloat():
		n, err := strconv.ParseFloat(s, v.Type().Bits())
		if err != nil {
			return wrong("a number", nil)
		}
		v.SetFloat(n)
	case kind == reflect.String:
		if !quoted {
			return wrong("a string", nil)
		}
		v.SetString(s)
	default:
		return fmt.Errorf("%w: the transport has an option of type %v, which cannot be set", framework.ErrInvalid, v.Type())
	}
	return nil
}

func list(v reflect.Value, value any, name string, wrong func(string, error) error) error {
	items, ok := value.([]any)
	if s, text := value.(string); text {
		ok = true
		for _, word := range strings.Split(s, ",") {
			if word = strings.TrimSpace(word); word != "" {
				items = append(items, word)
			}
		}
	}
	if !ok {
		return wrong("a list", nil)
	}
	out := reflect.MakeSlice(v.Type(), len(items), len(items))
	for i, item := range items {
		if err := set(out.Index(i), item, fmt.Sprintf("%s[%d]", name, i)); err != nil {
			return err
		}
	}
	v.Set(out)
	return nil
}

func dictionary(v reflect.Value, value any, name string, wrong func(string, error) error) error {
	tree, ok := value.(map[string]any)
	if !ok || v.Type().Key().Kind() != reflect.String {
		return wrong("a table", nil)
	}
	out := reflect.MakeMapWithSize(v.Type(), len(tree))
	for _, key := range slices.Sorted(maps.Keys(tree)) {
		item := reflect.New(v.Type().Elem()).Elem()
		if err := set(item, tree[key], name+"."+key); err != nil {
			return err
		}
		out.SetMapIndex(reflect.ValueOf(key).Convert(v.Type().Key()), item)
	}
	v.Set(out)
	return nil
}

// scalar is the text of a string, number or boolean.
func scalar(value any) (string, bool) {
	switch x := value.(type) {
	case string:
		return x, true
	case json.Number:
		return x.String(), true
	case bool:
		return strconv.FormatBool(x), true
	}
	return "", false
}

func quote(value any) string {
	b, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	return string(b)
}
