package kernellist

import (
	"slices"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// Names are in the order of numbers, complete, and parse to what they name.
func TestNamesParse(t *testing.T) {
	types, ops := Types(), Ops()
	if len(types) != kernel.DataTypes || len(ops) != kernel.Ops {
		t.Fatalf("%d types and %d reductions, expected %d and %d", len(types), len(ops), kernel.DataTypes, kernel.Ops)
	}
	for i, name := range types {
		if v, err := kernel.ParseDataType(name); err != nil || int(v) != i {
			t.Errorf("type %d is %q, which is %v, %v", i, name, v, err)
		}
	}
	for i, name := range ops {
		if v, err := kernel.ParseOp(name); err != nil || int(v) != i {
			t.Errorf("reduction %d is %q, which is %v, %v", i, name, v, err)
		}
	}
	types[0] = "changed"
	if Types()[0] == "changed" {
		t.Error("callers share one list")
	}
}

func TestCollective(t *testing.T) {
	k := Collective(Reduce, "allreduce", "twophase_ll8", framework.KindMemory)
	if k.Symbol != "mscclpp_allreduce_twophase_ll8" || !slices.Equal(k.Ops, Ops()) || !slices.Equal(k.Types, Types()) ||
		k.MaxRanks != MaxRanks || !slices.Equal(k.Channels, []framework.Kind{framework.KindMemory}) {
		t.Errorf("%+v", k)
	}
	if collective, algorithm, ok := Names(k.Symbol); !ok || collective != k.Collective || algorithm != k.Algorithm {
		t.Errorf("%s: %s, %s, %v: expected what it was made from", k.Symbol, collective, algorithm, ok)
	}
	if k := Collective("move", "barrier", "signal", framework.KindMemory); k.Ops != nil {
		t.Errorf("%+v: expected no reductions of a kernel that computes nothing", k)
	}
}

func TestNamesOfOthers(t *testing.T) {
	for _, symbol := range []string{"", "mscclpp_", "mscclpp_actor", "mscclpp__x", "mscclpp_x_", "allreduce_ring", "other_allreduce_ring"} {
		if collective, algorithm, ok := Names(symbol); ok {
			t.Errorf("%q is %s by %s: expected no collective's", symbol, collective, algorithm)
		}
	}
}

func TestActorOver(t *testing.T) {
	k := ActorOver(framework.KindMemory, framework.KindPort)
	if _, _, ok := Names(k.Symbol); ok || !strings.HasPrefix(k.Symbol, prefix) || k.Collective != "" || k.Family != Actor || len(k.Channels) != 2 {
		t.Errorf("%+v: expected a kernel of no collective, over two kinds of channel", k)
	}
}
