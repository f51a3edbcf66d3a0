package choose

import (
	"fmt"
	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/framework/collective"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"slices"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/collectives/internal/choose/model"
)

// gpusWith makes what ranks say of GPUs of their own, which links join as between says.
func gpusWith(n int, name string, major int, between func(i, j int) NVLink) []Surroundings {
	list := make([]Surroundings, n)
	at := func(i int) string { return fmt.Sprintf("0000:%02x:00.0", 0x10+i) }
	for i := range list {
		list[i] = Surroundings{Device: at(i), Address: at(i), Name: name, Major: major}
		if between == nil {
			continue
		}
		list[i].Links.Known = true
		for j := range n {
			if l := between(i, j); i != j && l.Count > 0 {
				l.Peer = at(j)
				list[i].Links.NVLinks = append(list[i].Links.NVLinks, l)
			}
		}
	}
	return list
}

// apart puts half of the GPUs on another host, which has the same addresses.
func apart(list []Surroundings) []Surroundings {
	half := len(list) / 2
	for i := range list {
		s := &list[i]
		s.Links.Host, s.Address = fmt.Sprint("host ", i/half), list[i%half].Address
		s.Links.NVLinks = slices.DeleteFunc(s.Links.NVLinks, func(l NVLink) bool {
			return !slices.ContainsFunc(list[:half], func(o Surroundings) bool { return o.Address == l.Peer }) || l.Peer == s.Address
		})
	}
	return list
}

func all(l NVLink) func(i, j int) NVLink { return func(int, int) NVLink { return l } }

var hopper = NVLink{Count: 18, Version: 4, Switch: true}

func TestHowGPUsAreJoined(t *testing.T) {
	pair := NVLink{Count: 12, Version: 4}
	host := gpusWith(2, "NVIDIA A10G", 8, all(NVLink{}))
	host[1].Links.HostMemory = true
	slowBus := gpusWith(2, "NVIDIA L4", 8, all(NVLink{}))
	slowBus[1].Links.PCIe = 15.75
	shared := gpusWith(4, "NVIDIA H200", 9, all(hopper))
	shared[1].Device, shared[1].Address = shared[0].Device, shared[0].Address
	for i := range shared { // links to where the second one is in truth
		for j := range shared[i].Links.NVLinks {
			if shared[i].Links.NVLinks[j].Peer == "0000:11:00.0" {
				shared[i].Links.NVLinks[j].Peer = shared[0].Address
			}
		}
	}
	one := gpusWith(2, "NVIDIA H200", 9, nil)
	one[1].Device = one[0].Device
	for name, x := range map[string]struct {
		list     []Surroundings
		noLines  bool
		measured bool
		how      string
		want     model.Links
	}{
		"two H200s":    {gpusWith(2, "NVIDIA H200", 9, all(hopper)), false, true, "18 NVLinks 4 through switches", overH200s(2)},
		"four H200s":   {gpusWith(4, "NVIDIA H200", 9, all(hopper)), false, true, "18 NVLinks 4 through switches", overH200s(4)},
		"five H200s":   {gpusWith(5, "NVIDIA H200", 9, all(hopper)), false, false, "18 NVLinks 4 through switches", overH200s(5)},
		"H100s":        {gpusWith(4, "NVIDIA H100 80GB HBM3", 9, all(hopper)), false, true, "18 NVLinks 4", model.OverNVLink(18, 4, 3, true, 3350)},
		"no lines":     {gpusWith(2, "NVIDIA H200", 9, all(hopper)), true, false, "18 NVLinks 4", torn(overH200s(2))},
		"A100s":        {gpusWith(8, "NVIDIA A100-SXM4-40GB", 8, all(NVLink{Count: 12, Version: 3, Switch: true})), false, false, "12 NVLinks 3", model.OverNVLink(12, 3, 7, true, 1555)},
		"no switch":    {gpusWith(4, "NVIDIA A100-SXM4-40GB", 8, all(NVLink{Count: 4, Version: 3})), false, false, "4 NVLinks 3 to each peer", model.OverNVLink(12, 3, 3, false, 1555)},
		"two of those": {gpusWith(2, "NVIDIA A100-SXM4-40GB", 8, all(NVLink{Count: 4, Version: 3})), false, false, "4 NVLinks 3 to each peer", model.OverNVLink(4, 3, 1, false, 1555)},
		"one NVL pair": {gpusWith(2, "NVIDIA H100 NVL", 9, all(pair)), false, false, "12 NVLinks 4 to each peer", model.OverNVLink(12, 4, 1, false, 3350)},
		"two NVL pairs": {gpusWith(4, "NVIDIA H100 NVL", 9, func(i, j int) NVLink {
			if i/2 == j/2 {
				return pair
			}
			return NVLink{}
		}), true, false, "12 NVLinks 4 to each peer and PCIe", torn(model.OverNVLink(36, 4, 3, false, 3350)).Slower(model.OverPCIe(31.5, 3350))},
		"PCIe":                           {slowBus, true, false, "PCIe", model.OverPCIe(15.75, 300)},
		"host memory":                    {host, true, false, "memory of the host", model.OverHost(31.5)},
		"B200s":                          {gpusWith(2, "NVIDIA B200", 10, all(NVLink{Count: 18, Version: 5, Switch: true})), false, false, "18 NVLinks 5", model.OverNVLink(18, 5, 1, true, 8000)},
		"two hosts":                      {apart(gpusWith(8, "NVIDIA GB200", 10, all(NVLink{Count: 18, Version: 5, Switch: true}))), false, false, "18 NVLinks 5 through switches", model.OverNVLink(18, 5, 7, true, model.MemoryOf("NVIDIA GB200"))},
		"workstations, unknown":          {gpusWith(2, "NVIDIA RTX PRO 6000", 12, nil), false, false, "PCIe", whole(model.OverPCIe(31.5, model.MemoryOf("NVIDIA RTX PRO 6000")))},
		"unknown":                        {gpusWith(2, "NVIDIA H200", 9, nil), false, true, "18 NVLinks 4", overH200s(2)},
		"unknown, but lines may be torn": {gpusWith(2, "NVIDIA H200", 9, nil), true, false, "PCIe", model.OverPCIe(31.5, 4800)},
		"A100s, unknown":                 {gpusWith(4, "NVIDIA A100", 8, nil), false, false, "12 NVLinks 3", model.OverNVLink(12, 3, 3, true, 1555)},
		"a shared GPU":                   {shared, false, true, "18 NVLinks 4", overH200s(4)},
		"a maker's":                      {gpusWith(4, "ACME X1", 0, all(NVLink{Count: 2, Kind: "AcmeLink 2", Rate: 50, Latency: 2})), false, false, "2 AcmeLink 2 to each peer", model.OverLinks(50, 2, 3, false, model.MemoryOf(""))},
		"a maker's switch":               {gpusWith(4, "ACME X1", 0, all(NVLink{Count: 2, Rate: 50, Switch: true})), false, false, "2 links through switches", model.OverLinks(50, 0, 3, true, model.MemoryOf(""))},
		"a maker's, of unknown rate":     {gpusWith(4, "ACME X1", 0, all(NVLink{Count: 18, Version: 4, Kind: "AcmeLink 2", Switch: true})), false, false, "18 AcmeLink 2 through switches", model.OverNVLink(18, 4, 3, true, model.MemoryOf(""))},
		"a maker's bus":                  {gpusWith(4, "ACME X1", 0, all(NVLink{})), false, false, "PCIe", whole(model.OverPCIe(31.5, model.MemoryOf("")))},
		"more than there can be":         {gpusWith(2, "ACME X1", 0, all(NVLink{Count: 2, Rate: 1e300})), false, false, "PCIe", whole(model.OverPCIe(31.5, model.MemoryOf("")))},
		"all on one GPU":                 {one, false, true, "one GPU", model.OverNVLink(18, 4, 1, true, model.MemoryOf(""))},
		"one rank":                       {gpusWith(1, "NVIDIA L4", 8, all(NVLink{})), false, true, "one GPU", model.OverNVLink(18, 4, 1, true, model.MemoryOf(""))},
	} {
		r := Joined(x.list, x.noLines)
		if r.Measured != x.measured || !strings.HasPrefix(r.How, x.how) || r.Links != x.want {
			t.Errorf("%s: %+v: want measured %v, over %s: %+v", name, r, x.measured, x.how, x.want)
		}
	}
}

func whole(l model.Links) model.Links {
	l.Lines = true
	return l
}

func torn(l model.Links) model.Links {
	l.Lines = false
	return l
}

// GPUs of which nobody tells the links have what such GPUs usually have.
// AMD's GPUs have links of their own to each peer, at the rates that RCCL reckons with. No built-in row was measured over them,
// though their compute capability is that of the GPUs of those rows. A pair without links goes over the bus.
func TestLinksOfAMD(t *testing.T) {
	for name, each := range map[string]float64{"AMD Instinct MI300X": 48, "AMD Instinct MI250X": 36} {
		r := Joined(gpusWith(8, name, 9, all(NVLink{Count: 1})), true)
		if l := r.Links; r.Measured || l.Each != each || l.Store != 7*each || l.Load >= l.Store || l.Lines || r.How != "1 xGMI links to each peer" {
			t.Errorf("%s: %+v", name, r)
		}
		mesh := func(i, j int) NVLink { return NVLink{Count: 1 - (i+j)%2} } // every second pair
		if got, bus := Joined(gpusWith(4, name, 9, mesh), true).Links.Store, model.OverPCIe(defaultPCIe, 1).Store; got != bus {
			t.Errorf("%s, no full mesh: stores of %g GB/s: expected those of the bus, %g", name, got, bus)
		}
	}
}

func TestUsualLinks(t *testing.T) {
	for cc, want := range map[[2]int]int{{7, 0}: 6, {7, 5}: 0, {8, 0}: 12, {8, 6}: 0, {8, 9}: 0, {9, 0}: 18, {10, 0}: 18, {0, 0}: 18} {
		if got := usual(cc[0], cc[1]); got.Count != want {
			t.Errorf("capability %v: %d links, want %d", cc, got.Count, want)
		}
	}
}

// Links that were measured go by the rows that were measured, all others by the model; rows that a
// program configures come before both.
func TestWhichRowsAreUsed(t *testing.T) {
	for name, x := range map[string]struct {
		list  []Surroundings
		torn  bool
		basis string
	}{
		"four H200s":  {gpusWith(4, "NVIDIA H200", 9, all(hopper)), false, "rows measured on H200s, for 4 ranks over 18 NVLinks 4 through switches"},
		"eight H200s": {gpusWith(8, "NVIDIA H200", 9, all(hopper)), false, "a model of 8 ranks over 18 NVLinks 4 through switches: latency 0.71 µs, stores 365 GB/s"},
		"two L4s":     {gpusWith(2, "NVIDIA L4", 8, all(NVLink{})), true, "a model of 2 ranks over PCIe: latency 1.30 µs, stores 25 GB/s"},
	} {
		n := len(x.list)
		rows, basis := Builtin(Facts{Route: Joined(x.list, x.torn), Ranks: n, CopyScratch: 1 << 30, Slots: Slots{1 << 20, 1 << 20, 1 << 20}}, offering(collective.AllReduce))
		if !strings.HasPrefix(basis, x.basis) {
			t.Errorf("%s: by %s, want %s", name, basis, x.basis)
		}
		if model := strings.HasPrefix(basis, "a model"); model == (&rows[0] == &deviceTable[0]) {
			t.Errorf("%s: %s, and the rows are those that were measured: %v", name, basis, !model)
		}
		own := Tables{Program: []engine.Row{{Collective: collective.AllReduce, MaxBytes: 1 << 10, Algorithm: "twophase_ll8"}}, Builtin: rows}
		q := engine.Query{Request: engine.Request{Collective: collective.AllReduce, Bytes: 1 << 10, Count: 512, Type: kernel.Float16, Ranks: n}}
		if a, _, err := Find(&own, offering(collective.AllReduce), &q, ""); err != nil || a.Name != "twophase_ll8" {
			t.Errorf("%s: %v, %v: want the configured row to come first", name, a, err)
		}
	}
}

// offering are the algorithms of this module, as kernels offer them.
func offering(k collective.Kind) (list []*engine.Algorithm) {
	for _, name := range Existing(k) {
		list = append(list, engine.New(k, name))
	}
	return list
}

// overH200s are the links of the machines that were measured.
func overH200s(ranks int) model.Links {
	return model.OverNVLink(measuredLinks, measuredVersion, ranks-1, true, model.MemoryOf("NVIDIA H200"))
}
