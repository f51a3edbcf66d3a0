package options

import (
	"errors"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
)

type base struct {
	Trace bool `help:"From the embedded struct."`
}

type config struct {
	base
	Spin    time.Duration `help:"How long to poll."`
	NICList []string      `help:"Adapters."`
	Depth   int8
	Bytes   uint64
	Ratio   float32
	Device  string `option:"dev"`
	Addr    netip.Addr
	Limit   *int
	Ports   []uint16
	Weights map[string]int
	Any     any
	Queue   struct {
		Slots uint32 `help:"Entries."`
	}
	Hidden string `option:"-"`
	secret int
}

func (config) Defaults() config {
	c := config{Spin: 20 * time.Microsecond, Device: "auto", secret: 1}
	c.Queue.Slots = 64
	return c
}

func (c config) Validate() error {
	if c.Ratio > 1 {
		return errors.New("ratio: expected 0 to 1")
	}
	return nil
}

func TestSchema(t *testing.T) {
	got := map[string]Option{}
	for _, o := range Schema[config]() {
		got[o.Name] = o
	}
	want := []Option{
		{"trace", "bool", "false", "From the embedded struct."},
		{"spin", "duration", "20µs", "How long to poll."},
		{"nic_list", "list of string", "", "Adapters."},
		{"depth", "int", "0", ""},
		{"bytes", "uint", "0", ""},
		{"ratio", "float", "0", ""},
		{"dev", "string", "auto", ""},
		{"addr", "string", "", ""},
		{"limit", "int", "", ""},
		{"ports", "list of uint", "", ""},
		{"weights", "table of int", "", ""},
		{"queue.slots", "uint", "64", "Entries."},
	}
	for _, w := range want {
		if got[w.Name] != w {
			t.Errorf("option %s: got %+v, expected %+v", w.Name, got[w.Name], w)
		}
	}
	if _, ok := got["hidden"]; ok {
		t.Error("a hidden field became an option")
	}
	if n := len(want) + 1; len(got) != n { // and "any"
		t.Errorf("got %d options, expected %d: %v", len(got), n, got)
	}
	if s := Schema[int](); s != nil {
		t.Errorf("schema of int: got %v, expected none", s)
	}
}

func TestDecode(t *testing.T) {
	five := 5
	want := config{}.Defaults()
	want.Trace, want.Spin, want.NICList, want.Depth = true, time.Second, []string{"a", "b"}, -3
	want.Bytes, want.Ratio, want.Device = 1<<53+1, 0.5, "cuda:1"
	want.Addr, want.Limit, want.Ports = netip.MustParseAddr("::1"), &five, []uint16{1, 0xffff}
	want.Weights, want.Queue.Slots = map[string]int{"x": 2}, 128

	typed := `{"trace":true,"spin":"1s","nic_list":["a","b"],"depth":-3,"bytes":9007199254740993,"ratio":0.5,
		"dev":"cuda:1","addr":"::1","limit":5,"ports":[1,65535],"weights":{"x":2},"queue":{"slots":128}}`
	fromEnvironment := `{"trace":"true","spin":"1s","nic_list":"a, b","depth":"-3","bytes":"9007199254740993","ratio":"0.5",
		"dev":"cuda:1","addr":"::1","limit":"5","ports":"1,0xffff","weights":{"x":"2"},"queue":{"slots":"128"},"any":null}`
	for _, text := range []string{typed, fromEnvironment} {
		got, err := Decode[config]([]byte(text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
		} else if !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\ngot      %+v\nexpected %+v", text, got, want)
		}
	}
	got, err := Decode[config](nil)
	if err != nil || !reflect.DeepEqual(got, config{}.Defaults()) {
		t.Errorf("no options: got %+v, %v, expected the defaults", got, err)
	}
}

func TestDecodeNamesTheMistake(t *testing.T) {
	cases := []struct{ text, want string }{
		{`{"spinn":"1s"}`, `unknown option "spinn": did you mean "spin"?`},
		{`{"nic-list":[]}`, `did you mean "nic_list"?`},
		{`{"queue":{"slot":1}}`, `unknown option "queue.slot": did you mean "queue.slots"?`},
		{`{"completely_else":1}`, `expected one of trace spin`},
		{`{"hidden":"x"}`, `unknown option "hidden"`},
		{`{"secret":1}`, `unknown option "secret"`},
		{`{"spin":5}`, `option "spin": expected a duration`},
		{`{"spin":"5 parsecs"}`, `option "spin": expected a duration with its unit, such as 20us, 30s or 1m30s, found the text "5 parsecs"`},
		{`{"depth":300}`, `option "depth": 300 is too large: expected a whole number of at most 127`},
		{`{"depth":1.5}`, `expected a whole number`},
		{`{"bytes":-1}`, `expected a number that is not negative, found -1`},
		{`{"ratio":"much"}`, `expected a number`},
		{`{"trace":"perhaps"}`, `expected true or false`},
		{`{"dev":5}`, `option "dev": expected text, found 5`},
		{`{"dev":{}}`, `expected text, found a section`},
		{`{"addr":"nowhere"}`, `option "addr"`},
		{`{"addr":[]}`, `expected text`},
		{`{"queue":7}`, `option "queue": expected a table`},
		{`{"ports":[1,70000]}`, `option "ports[1]"`},
		{`{"ports":7}`, `expected a list`},
		{`{"weights":{"x":"many"}}`, `option "weights.x"`},
		{`{"weights":[]}`, `expected a table`},
		{`{"ratio":2}`, `ratio: expected 0 to 1`},
		{`[]`, `expected a JSON object`},
		{`{} {}`, `expected one JSON object`},
		{`{`, `expected a JSON object`},
	}
	for _, c := range cases {
		_, err := Decode[config]([]byte(c.text))
		if !errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, expected ErrInvalid with %q", c.text, err, c.want)
		}
	}
	type none struct{}
	if _, err := Decode[none]([]byte(`{"x":1}`)); err == nil || !strings.Contains(err.Error(), "no options") {
		t.Errorf("a transport without options: got %v", err)
	}
	if _, err := Decode[int]([]byte(`{"x":1}`)); !errors.Is(err, framework.ErrInvalid) {
		t.Errorf("options that are no struct: got %v, expected ErrInvalid", err)
	}
	type odd struct{ F func() }
	if _, err := Decode[odd]([]byte(`{"f":"1"}`)); !errors.Is(err, framework.ErrInvalid) {
		t.Errorf("an option that cannot be set: got %v, expected ErrInvalid", err)
	}
}

type picky struct{ N int }

func (s *picky) Validate() error {
	return framework.ErrUnavailable
}

func TestValidateKeepsItsClass(t *testing.T) {
	if _, err := Decode[picky](nil); !errors.Is(err, framework.ErrUnavailable) || errors.Is(err, framework.ErrInvalid) {
		t.Errorf("got %v, expected ErrUnavailable alone", err)
	}
}

// An error carries the key of the option that it is about.
func TestErrorsCarryTheKey(t *testing.T) {
	for text, want := range map[string]string{
		`{"depth":300}`: "depth", `{"queue":{"slots":-1}}`: "queue.slots", `{"ports":[1,70000]}`: "ports[1]", `{"spinn":1}`: "spinn", `{"queue":{"x":1}}`: "queue.x",
	} {
		_, err := Decode[config]([]byte(text))
		var option *framework.OptionError
		if !errors.As(err, &option) || option.Key != want {
			t.Errorf("%s: %v: expected the key %s", text, err, want)
		}
	}
}

func TestSnake(t *testing.T) {
	for in, want := range map[string]string{
		"Spin": "spin", "SpinTime": "spin_time", "NICList": "nic_list", "GID": "gid", "UseGPU": "use_gpu", "A": "a",
	} {
		if got := snake(in); got != want {
			t.Errorf("snake(%s): got %s, expected %s", in, got, want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"spin":"1s","queue":{"slots":1},"any":{"a":[1,null]}}`))
	f.Add([]byte(`{"limit":null,"ports":"1,2"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, err := Decode[config](data); err != nil && !errors.Is(err, framework.ErrInvalid) {
			t.Errorf("got %v, expected ErrInvalid", err)
		}
	})
}
