package strict

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"
)

// size reads text, and is set by numbers.
type size uint64

func (s *size) UnmarshalText(text []byte) error {
	if string(text) != "1K" {
		return fmt.Errorf("%q: expected a size", text)
	}
	*s = 1024
	return nil
}

// period reads text alone.
type period int64

func (p *period) UnmarshalText([]byte) error { *p = 1; return nil }

func fields(t reflect.Type) []Field {
	var out []Field
	for i := range t.NumField() {
		out = append(out, Field{Name: strings.ToLower(t.Field(i).Name), Index: []int{i}})
	}
	return out
}

func decoder(text, natural bool) Decoder {
	return Decoder{
		Text: text, Natural: natural, Fields: fields,
		TextOnly: map[reflect.Type]string{reflect.TypeFor[period](): "a period"},
		Unknown: func(key, name string, known []string) string {
			return fmt.Sprint("unknown ", key, "/", name, " of ", known)
		},
	}
}

func TestSet(t *testing.T) {
	file, text := decoder(false, false), decoder(true, false)
	five := 5
	for _, c := range []struct {
		d         Decoder
		raw, want any
	}{
		{file, "x", "x"}, {file, true, true}, {text, "true", true}, {text, json.Number("1"), true},
		{file, 7, int8(7)}, {file, int64(-7), int32(-7)}, {file, uint64(math.MaxUint64), uint64(math.MaxUint64)}, {file, json.Number("9007199254740993"), int64(1<<53 + 1)},
		{text, "0xffff", uint16(math.MaxUint16)}, {text, "010", 10}, {text, "-0x10", -16},
		{file, 1.5, 1.5}, {file, 2, float32(2)}, {text, "1e3", 1000.0},
		{file, "1m", time.Minute}, {file, "1K", size(1024)}, {file, 9, size(9)}, {text, "x", period(1)},
		{file, []any{"a", "b"}, []string{"a", "b"}}, {text, " a ,, b", []string{"a", "b"}}, {text, "", []string{}},
		{file, map[string]any{"x": 1}, map[string]int{"x": 1}},
		{file, map[string]any{"a": 1, "b": nil}, struct{ A, B int }{A: 1}},
		{file, 5, &five}, {text, "::1", netip.MustParseAddr("::1")},
	} {
		to := reflect.New(reflect.TypeOf(c.want))
		if err := c.d.Set(to.Elem(), c.raw); err != nil || !reflect.DeepEqual(to.Elem().Interface(), c.want) {
			t.Errorf("%T from %#v: got %#v, %v, expected %#v", c.want, c.raw, to.Elem().Interface(), err, c.want)
		}
	}
}

func TestRefuse(t *testing.T) {
	file, text, natural := decoder(false, false), decoder(true, false), decoder(true, true)
	type inner struct{ C []int }
	type outer struct {
		A int
		B inner
		M map[string]bool
	}
	for _, c := range []struct {
		d         Decoder
		to        any
		raw       any
		key, want string
	}{
		{file, new(string), 7, "", "expected text, found 7"},
		{file, new(bool), "true", "", `expected true or false, found the text "true"`},
		{file, new(bool), 1, "", "expected true or false, found 1"},
		{file, new(int), "7", "", `expected a whole number, found the text "7"`},
		{file, new(int), 2.0, "", "expected a whole number, found 2"},
		{file, new(int), math.NaN(), "", "expected a whole number, found NaN"},
		{file, new(int), true, "", "expected a whole number, found true"},
		{file, new(int8), 128, "", "128 is too large: expected a whole number of at most 127"},
		{file, new(int8), -129, "", "-129 is too small: expected a whole number of at least -128"},
		{file, new(int), 1e20, "", "100000000000000000000 is too large: expected a whole number of at most 9223372036854775807"},
		{file, new(uint64), 1e20, "", "at most 18446744073709551615"},
		{file, new(uint), -1, "", "expected a number that is not negative, found -1"},
		{natural, new(int), "-1", "", `expected a number that is not negative, found the text "-1"`},
		{natural, new(int), "-99999999999999999999", "", "not negative"},
		{text, new(int), "0x", "", "expected a whole number"},
		{text, new(int), "", "", "expected a whole number"},
		{text, new(float32), "1e99", "", "too large"},
		{text, new(float64), "much", "", "expected a number"},
		{file, new(time.Duration), 5, "", "expected a duration with its unit"},
		{text, new(time.Duration), "5 parsecs", "", "expected a duration with its unit"},
		{file, new(size), "2K", "", `"2K": expected a size`},
		{file, new(size), -2, "", "not negative"},
		{file, new(period), 3, "", "expected a period, found 3"},
		{file, new(netip.Addr), []any{}, "", "expected text, found a list"},
		{file, new([]string), "a,b", "", "expected a list"},
		{file, new([]string), []any{"a", 7}, "[1]", "expected text, found 7"},
		{file, new(map[string]int), 3, "", "expected a table, found 3"},
		{file, new(map[int]int), map[string]any{}, "", "expected a table"},
		{file, new(outer), map[string]any{"b": map[string]any{"c": []any{1, "x"}}}, "b.c[1]", "expected a whole number"},
		{file, new(outer), map[string]any{"m": map[string]any{"k": 1}}, "m.k", "expected true or false"},
		{file, new(outer), map[string]any{"b": map[string]any{"d": 1}}, "b.d", "unknown b/d of [c]"},
		{file, new(outer), map[string]any{"b": 1}, "b", "expected a table, found 1"},
		{file, new(func()), "x", "", "cannot be set"},
	} {
		err := c.d.Set(reflect.ValueOf(c.to).Elem(), c.raw)
		var wrong *Error
		if !errors.As(err, &wrong) || wrong.Key != c.key || !strings.Contains(wrong.Reason, c.want) {
			t.Errorf("%T from %#v: got %v, expected key %q and %q", c.to, c.raw, err, c.key, c.want)
		}
	}
}
