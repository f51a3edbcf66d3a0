package remote

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
)

func TestHostLists(t *testing.T) {
	for text, want := range map[string][]Host{
		"a":                  {{"a", 0}},
		"a,b:4":              {{"a", 0}, {"b", 4}},
		"a:2,b,a:3":          {{"a", 5}, {"b", 0}},
		"me@gpu-1.lab:8, b":  {{"me@gpu-1.lab", 8}, {"b", 0}},
		"10.0.0.1:2,fe80::1": {{"10.0.0.1", 2}, {"fe80::1", 0}},
		"[fe80::1]:2,[::1]":  {{"fe80::1", 2}, {"::1", 0}},
		"me@[fd00::1]:2":     {{"me@fd00::1", 2}},
		"[me@fd00::1]:2":     {{"me@fd00::1", 2}},
		"fe80::1%eth0,b":     {{"fe80::1%eth0", 0}, {"b", 0}},
		"[fe80::1%br-0.7]:2": {{"fe80::1%br-0.7", 2}},
		"me@[fe80::1%eth0]":  {{"me@fe80::1%eth0", 0}},
	} {
		got, err := ParseHosts(text)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v; expected %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "a,,b", "-oProxyCommand=x", "a b", "a;b", "a:0", "a:x", "a:99999", "$(x)", "a'b", "[::1", "[::1]x", "@a", "-l@a", "a:-1", "a:", "[::1]:", "me@", "me@[]", "a%h", "10.0.0.1%eth0", "fe80::1%", "fe80::1%e;x", "fe80::1%a%b", "%eth0"} {
		if got, err := ParseHosts(text); !errors.Is(err, framework.ErrInvalid) {
			t.Errorf("%q: %v, %v; expected an error", text, got, err)
		}
	}
}

func TestHostfiles(t *testing.T) {
	got, err := ReadHostfile(strings.NewReader("\ufeffa\nb\n"), "f")
	if want := []Host{{"a", 0}, {"b", 0}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("with a byte order mark: %v, %v; expected %v", got, err, want)
	}
	got, err = ReadHostfile(strings.NewReader("# all\na slots=4 max_slots=8\n\n b:2 # two\nc\na\n"), "f")
	if want := []Host{{"a", 5}, {"b", 2}, {"c", 0}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v; expected %v", got, err, want)
	}
	for text, want := range map[string]string{
		"":                    "f: invalid: no host",
		"# none\n":            "f: invalid: no host",
		"a\nb slots=x\n":      `f, line 2: invalid: host b: "x" ranks`,
		"a cores=2\n":         `f, line 1: invalid: "cores=2": expected slots=N`,
		"a:4 slots=2\n":       `f, line 1: invalid: host a: "4" ranks, and slots=2: expected one of them`,
		"a slots=\n":          `f, line 1: invalid: "slots=": expected slots=N`,
		"a slots=1 slots=2\n": `f, line 1: invalid: "slots=2": expected slots=N, once`,
		"a\n\ufeffb\n":        `f, line 2: invalid: host "\ufeffb"`,
		"\n\n-x\n":            `f, line 3: invalid: host "-x"`,
	} {
		if _, err := ReadHostfile(strings.NewReader(text), "f"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; expected %q", text, err, want)
		}
	}
}

func TestSpread(t *testing.T) {
	a, b := Host{Name: "a"}, Host{Name: "b"}
	a4, b2 := Host{"a", 4}, Host{"b", 2}
	for name, c := range map[string]struct {
		list        []Host
		total, each int
		want        []int
	}{
		"one each":         {[]Host{a, b}, 0, 0, []int{1, 1}},
		"their slots":      {[]Host{a4, b2}, 0, 0, []int{4, 2}},
		"a slot unsaid":    {[]Host{a4, b}, 0, 0, []int{4, 1}},
		"host by host":     {[]Host{a4, b2}, 5, 0, []int{4, 1}},
		"the first is it":  {[]Host{a4, b2}, 3, 0, []int{3, 0}},
		"evenly":           {[]Host{a, b}, 5, 0, []int{3, 2}},
		"fewer than hosts": {[]Host{a, b}, 1, 0, []int{1, 0}},
		"each":             {[]Host{a, b}, 0, 3, []int{3, 3}},
		"each and all":     {[]Host{a, b}, 6, 3, []int{3, 3}},
		"each below slots": {[]Host{a4, b2}, 0, 2, []int{2, 2}},
	} {
		if got, err := Spread(c.list, c.total, c.each); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, %v; expected %v", name, got, err, c.want)
		}
	}
	for name, c := range map[string]struct {
		list        []Host
		total, each int
		want        string
	}{
		"too many":         {[]Host{a4, b2}, 7, 0, "-n 7, and the 2 hosts have 6 slots"},
		"each too many":    {[]Host{a4, b2}, 0, 3, "b has 2 slots"},
		"all and each not": {[]Host{a, b}, 5, 3, "expected 6"},
		"a crowd":          {[]Host{a, b}, 2050, 0, "1025 ranks on host a: expected at most 1024"},
		"a crowd by slots": {[]Host{a4, {Name: "c", Slots: 1025}}, 0, 0, "1025 ranks on host c: expected at most 1024"},
		"a large job":      {slices.Repeat([]Host{a}, 65), 0, 1024, "65 hosts with 66560 ranks: expected at most 65536"},
	} {
		if got, err := Spread(c.list, c.total, c.each); !errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, %v; expected %q", name, got, err, c.want)
		}
	}
}

func TestHostfileWithALongLine(t *testing.T) {
	_, err := ReadHostfile(strings.NewReader(strings.Repeat("a", 1<<17)), "f")
	if !errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), "a line of more than 65536 bytes: expected one host a line") {
		t.Errorf("%v: expected that it has a long line", err)
	}
}

// For any file, no host is an option of ssh or a word of a shell.
func FuzzHostfile(f *testing.F) {
	for _, seed := range []string{"a slots=4\nb:2\n", "[::1]:3", "-x", "a:b:c", "a@b slots=1 slots=2"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		list, err := ReadHostfile(strings.NewReader(text), "f")
		if err != nil {
			return
		}
		for _, h := range list {
			if h.Name == "" || h.Name[0] == '-' || strings.ContainsAny(h.Name, " '\"$;&|`\n\\*?<>()") || h.Slots < 0 {
				t.Errorf("%q: host %q with %d slots", text, h.Name, h.Slots)
			}
		}
	})
}
