package topo

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
)

// line is an adapter of a machine made up for a test.
type line struct {
	name, link, rate, state, subnet string
	node                            int
}

func withAdapters(t *testing.T, all ...line) *Host {
	t.Helper()
	text := []string{"sys/devices/system/node/online = 0-1", "sys/devices/system/node/node0/cpulist = 0-3", "sys/devices/system/node/node1/cpulist = 4-7"}
	for _, a := range all {
		d := "sys/class/infiniband/" + a.name
		text = append(text, fmt.Sprintf("%s/device/numa_node = %d", d, a.node), d+"/ports/1/state = "+a.state,
			d+"/ports/1/link_layer = "+a.link, d+"/ports/1/rate = "+a.rate+" Gb/sec", d+"/ports/1/gids/0 = "+a.subnet+":0000:0000:0000:0001")
	}
	h, err := Surroundings(Replay(strings.Join(text, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// users counts for each adapter the ranks that begin with it.
func users(h *Host, turns []int, cpus ...int) map[string]int {
	n := map[string]int{}
	for _, turn := range turns {
		p := h.At(framework.Host, cpus)
		p.Turn = turn
		n[h.Facts(p).NICs[0].Name]++
	}
	return n
}

const (
	active = "4: ACTIVE"
	down   = "1: DOWN"
	subnet = "fe80:0000:0000:0000"
)

func TestTurns(t *testing.T) {
	ib := func(name string, node int) line { return line{name, "InfiniBand", "400", active, subnet, node} }
	two := withAdapters(t, ib("a", 0), ib("b", 0))
	other := func(change func(*line)) *Host {
		b := ib("b", 0)
		change(&b)
		return withAdapters(t, ib("a", 0), b)
	}
	four := withAdapters(t, ib("a", 0), ib("b", 0), ib("c", 1), ib("d", 1))
	for what, x := range map[string]struct {
		host  *Host
		turns []int
		cpus  []int
		want  map[string]int
	}{
		"four ranks":                   {two, []int{0, 1, 2, 3}, []int{0}, map[string]int{"a": 2, "b": 2}},
		"neighbors":                    {two, []int{4, 5}, []int{0}, map[string]int{"a": 1, "b": 1}},
		"every second":                 {two, []int{0, 2, 4, 6}, []int{0}, map[string]int{"a": 2, "b": 2}},
		"every second, the others":     {two, []int{1, 3, 5, 7}, []int{0}, map[string]int{"a": 2, "b": 2}},
		"no number":                    {two, []int{-1}, []int{0}, map[string]int{"a": 1}},
		"near the first node":          {four, []int{0, 1, 2, 3}, []int{1, 2}, map[string]int{"a": 2, "b": 2}},
		"near the second node":         {four, []int{4, 5, 6, 7}, []int{4}, map[string]int{"c": 2, "d": 2}},
		"not bound":                    {four, []int{0, 1, 2, 3, 4, 5, 6, 7}, []int{0, 4}, map[string]int{"a": 2, "b": 2, "c": 2, "d": 2}},
		"one is down":                  {other(func(l *line) { l.state = down }), []int{0, 1}, []int{0}, map[string]int{"a": 2}},
		"one is of another kind":       {other(func(l *line) { l.link = "Ethernet" }), []int{0, 1}, []int{0}, map[string]int{"a": 2}},
		"one is slower":                {other(func(l *line) { l.rate = "100" }), []int{0, 1}, []int{0}, map[string]int{"a": 2}},
		"one is in another network":    {other(func(l *line) { l.subnet = "fe80:0000:0000:0007" }), []int{0, 1}, []int{0}, map[string]int{"a": 2}},
		"one is farther away":          {other(func(l *line) { l.node = 1 }), []int{0, 1}, []int{0}, map[string]int{"a": 2}},
		"one, where nothing is nearer": {other(func(l *line) { l.node = 1 }), []int{0, 1}, []int{0, 4}, map[string]int{"a": 1, "b": 1}},
	} {
		if got := users(x.host, x.turns, x.cpus...); !maps.Equal(got, x.want) {
			t.Errorf("%s: ranks %v use %v, want %v", what, x.turns, got, x.want)
		}
	}
}

// All adapters are listed in every turn: the first may be of no use.
func TestTurnsLoseNothing(t *testing.T) {
	h := readMachine(t, "dgx")
	want := map[string]int{}
	for _, n := range h.NICs {
		want[n.Name] = 1
	}
	for turn := range 20 {
		p := h.At(framework.Host, nil)
		p.Turn = turn
		got := map[string]int{}
		for _, n := range h.Facts(p).NICs {
			got[n.Name]++
		}
		if !maps.Equal(got, want) {
			t.Fatalf("turn %d: %v, want %v", turn, got, want)
		}
	}
}

func TestSubnet(t *testing.T) {
	for gid, want := range map[string]string{"fe80:0000:0000:0000:e8eb:d303:0012:3400": "fe80:0000:0000:0000", "": "", "fe80": "fe80", "::::": ":::"} {
		if got := subnetOf(gid); got != want {
			t.Errorf("%q: %q, want %q", gid, got, want)
		}
	}
}
