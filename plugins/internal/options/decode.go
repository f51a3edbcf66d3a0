package options

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/internal/strict"
	"github.com/mscclpp-go/mscclpp/internal/suggest"
)

// Decode reads a JSON object into a C that starts with its defaults, and validates
// it. A key that C does not have is an error that names the nearest one. Strings
// are accepted for every scalar and, separated by commas, for lists: values of
// environment variables have no other type. All errors are ErrInvalid, and those about
// one option are a framework.OptionError.
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
	if err := decoder().Set(v, tree); err != nil {
		return c, refused(err)
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

func decoder() strict.Decoder {
	return strict.Decoder{
		Text: true,
		Fields: func(t reflect.Type) []strict.Field {
			var out []strict.Field
			for _, f := range fieldsOf(t) {
				out = append(out, strict.Field{Name: f.name, Index: f.index})
			}
			return out
		},
		Unknown: unknown,
	}
}

// refused is the error for a mistake that the decoder has found.
func refused(err error) error {
	var wrong *strict.Error
	if !errors.As(err, &wrong) {
		return invalid(err)
	}
	text := wrong.Reason
	if !wrong.Bare {
		text = fmt.Sprintf("option %q: %s", wrong.Key, wrong.Reason)
	}
	return framework.BadOption(wrong.Key, "%s", text)
}

// unknown says what is wrong with a name in the table under key.
func unknown(key, name string, known []string) string {
	if key != "" {
		key += "."
	}
	hint := "this transport has no options"
	if similar := suggest.Name(name, known); similar != "" {
		hint = fmt.Sprintf("did you mean %q?", key+similar)
	} else if len(known) > 0 {
		hint = "expected one of " + strings.Join(known, " ")
	}
	return fmt.Sprintf("unknown option %q: %s", key+name, hint)
}
