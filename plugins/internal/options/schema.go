// Package options gives a transport's options a schema and decodes them strictly.
//
// The transport owns its options: they are the exported fields of one struct, and
// nothing in the host knows them. The schema is made by reflection, so that
// `mscclpp-run config` can document options of plugins that it has never seen:
//
//	type Config struct {
//		SpinTime time.Duration `help:"How long a drain loop polls before it sleeps."`
//		NICs     []string      `option:"nics" help:"Adapters to use."`
//	}
//
//	// Defaults is optional; without it the zero value is the default.
//	func (Config) Defaults() Config { return Config{SpinTime: 20 * time.Microsecond} }
//
//	// Validate is optional.
//	func (c Config) Validate() error { … }
//
// The name of an option is the field's name in snake case, or the tag `option`;
// "-" hides a field. Nested structs are nested tables, embedded ones are inlined.
package options

import (
	"encoding"
	"fmt"
	"reflect"
	"strings"
	"time"
	"unicode"
)

// Option describes one key.
type Option struct {
	Name    string // keys of nested tables are joined with "."
	Type    string
	Default string // as text
	Help    string
}

var (
	durationType = reflect.TypeFor[time.Duration]()
	textType     = reflect.TypeFor[encoding.TextUnmarshaler]()
	marshalType  = reflect.TypeFor[encoding.TextMarshaler]()
)

// Schema lists the options of C in the order of its fields.
func Schema[C any]() []Option {
	v := reflect.ValueOf(defaults[C]())
	if v.Kind() != reflect.Struct {
		return nil
	}
	return describe(nil, "", v)
}

// defaults is what an option has that the user does not set.
func defaults[C any]() C {
	var c C
	if d, ok := any(c).(interface{ Defaults() C }); ok {
		return d.Defaults()
	}
	return c
}

func describe(out []Option, prefix string, v reflect.Value) []Option {
	for _, f := range fieldsOf(v.Type()) {
		value := v.FieldByIndex(f.index)
		if isTable(value.Type()) {
			out = describe(out, prefix+f.name+".", value)
			continue
		}
		out = append(out, Option{Name: prefix + f.name, Type: typeName(value.Type()), Default: text(value), Help: f.help})
	}
	return out
}

type field struct {
	name  string
	help  string
	index []int
}

// fieldsOf lists the fields of a struct that are options.
func fieldsOf(t reflect.Type) []field {
	var out []field
	for i := range t.NumField() {
		f := t.Field(i)
		name := f.Tag.Get("option")
		switch {
		case name == "-", !f.IsExported() && !f.Anonymous:
		case f.Anonymous && name == "" && isTable(f.Type):
			for _, inner := range fieldsOf(f.Type) {
				inner.index = append([]int{i}, inner.index...)
				out = append(out, inner)
			}
		case f.IsExported():
			if name == "" {
				name = snake(f.Name)
			}
			out = append(out, field{name: name, help: f.Tag.Get("help"), index: []int{i}})
		}
	}
	return out
}

// isTable reports whether values of t are tables of further options.
func isTable(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && !reflect.PointerTo(t).Implements(textType)
}

func typeName(t reflect.Type) string {
	switch {
	case t == durationType:
		return "duration"
	case reflect.PointerTo(t).Implements(textType):
		return "string"
	}
	switch t.Kind() {
	case reflect.Bool:
		return "bool"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return "int"
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "uint"
	case reflect.Float32, reflect.Float64:
		return "float"
	case reflect.String:
		return "string"
	case reflect.Slice:
		return "list of " + typeName(t.Elem())
	case reflect.Map:
		return "table of " + typeName(t.Elem())
	case reflect.Pointer:
		return typeName(t.Elem())
	}
	return t.String()
}

// text prints a default as the user would write it; "" for what is not set.
func text(v reflect.Value) string {
	switch {
	case v.Type() == durationType:
		return v.Interface().(time.Duration).String()
	case v.Type().Implements(marshalType) && (v.Kind() != reflect.Pointer || !v.IsNil()):
		b, err := v.Interface().(encoding.TextMarshaler).MarshalText()
		if err != nil {
			return ""
		}
		return string(b)
	}
	switch v.Kind() {
	case reflect.Slice:
		words := make([]string, v.Len())
		for i := range words {
			words[i] = text(v.Index(i))
		}
		return strings.Join(words, ",")
	case reflect.Map:
		if v.Len() == 0 {
			return ""
		}
	case reflect.Pointer:
		if v.IsNil() {
			return ""
		}
		return text(v.Elem())
	}
	return fmt.Sprint(v.Interface())
}

// snake turns FieldName into field_name and NICList into nic_list.
func snake(name string) string {
	runes := []rune(name)
	var b strings.Builder
	for i, r := range runes {
		if unicode.IsUpper(r) && i > 0 {
			word := !unicode.IsUpper(runes[i-1])
			last := i+1 < len(runes) && unicode.IsLower(runes[i+1])
			if word || last {
				b.WriteByte('_')
			}
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}
