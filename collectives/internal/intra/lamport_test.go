package intra

import (
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/collectives/internal/choose"
	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/framework/collective"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// Rows of packets without a flag are for the types that have them; others take the next row.
func TestRowsPassOverTypes(t *testing.T) {
	for _, x := range []struct {
		kind      collective.Kind
		ranks     int
		bytes     uint64
		by, other string
	}{
		{collective.AllReduce, 2, 64 << 10, "oneshot_lamport", "oneshot_ll128"},
		{collective.AllReduce, 2, 1 << 20, "oneshot_lamport", "twoshot_ll128"},
		{collective.ReduceScatter, 2, 1 << 20, "direct_lamport", "direct_ll128"},
		{collective.ReduceScatter, 4, 6 << 20, "direct_lamport", "direct_ll128"},
		{collective.Reduce, 2, 128 << 10, "direct_lamport", "direct_ll8"},
		{collective.Reduce, 2, 2 << 20, "direct_lamport", "direct_ll128"},
	} {
		var list []comm.Kernel
		for _, name := range []string{x.by, x.other} {
			k := comm.Kernel{}
			k.Collective, k.Algorithm, k.MaxThreads = x.kind.String(), name, 512
			if name == x.by {
				k.Types = []string{"f32", "f16", "bf16"}
			}
			list = append(list, k)
		}
		o := Options{Scratch: uint64(x.ranks) * 64 << 20, Route: choose.Joined(h200s(x.ranks), false)}
		e := &Engine{opts: o}
		if err := e.offer(engine.Discover(list, x.ranks), nil, site{ranks: x.ranks, line: lineOf(x.ranks)}, e.shape(132)); err != nil {
			t.Fatal(err)
		}
		c := &gpu{e, choose.Tables{Builtin: e.rows}, x.ranks}
		for d, want := range map[kernel.DataType]string{kernel.BFloat16: x.by, kernel.Float32: x.by, kernel.Int32: x.other, kernel.Float8E4M3B15: x.other} {
			q := request(x.kind, x.bytes, x.ranks)
			q.Type, q.Count = d, q.Count*2/uint64(d.Size())
			if a, _, err := c.choose(&q, ""); err != nil || a.Name != want {
				t.Errorf("%v of %d bytes of %v on %d GPUs: %+v, %v: expected %s", x.kind, x.bytes, d, x.ranks, a, err, want)
			}
		}
	}
}

// The area of packets without a flag is made where an algorithm can use it, and an algorithm that cannot be placed has a reason.
func TestLamportAreaIsMadeWhereItIsUsed(t *testing.T) {
	packets := comm.Kernel{}
	packets.Collective, packets.Algorithm, packets.MaxThreads, packets.Types = "allreduce", "oneshot_lamport", 512, []string{"f16"}
	bounded := packets
	bounded.MaxRanks = 4
	for name, x := range map[string]struct {
		at     site
		kernel comm.Kernel
		reason string
	}{
		"eight ranks":          {site{ranks: 8}, packets, ""},
		"nine ranks":           {site{ranks: 9}, packets, "at most 8 ranks that share memory, and there are 9"},
		"a kernel for fewer":   {site{ranks: 8}, bounded, "its kernel is for at most 4 ranks that share memory, and there are 8"},
		"no filling of memory": {site{ranks: 2, noFill: true}, packets, "cannot fill memory"},
	} {
		e := &Engine{opts: Options{Scratch: uint64(x.at.ranks) * 64 << 20, Route: choose.Joined(h200s(x.at.ranks), false)}}
		if err := e.offer(engine.Discover([]comm.Kernel{x.kernel}, x.at.ranks), nil, x.at, e.shape(132)); err != nil {
			t.Fatal(err)
		}
		err := engine.Why(e.unplaced, collective.AllReduce, "oneshot_lamport")
		if made := e.memory.geometry.LamportHalf != 0; made != (x.reason == "") || made != (err == nil) {
			t.Errorf("%s: the area is made: %v; the reason is %v", name, made, err)
		}
		if err != nil && !strings.Contains(err.Error(), x.reason) {
			t.Errorf("%s: %v: expected %q", name, err, x.reason)
		}
	}
}
