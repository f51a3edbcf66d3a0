package choose

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/collective"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// A name that is nearly right is answered with the one that was probably meant, and one that is not for this communicator with the
// reason; the list has all reasons.
func TestNoSuchAlgorithm(t *testing.T) {
	offered := []*engine.Algorithm{{Name: "ring"}, {Name: "zerocopy"}}
	unplaced := []engine.Unplaced{
		{Collective: collective.AllReduce, Name: "oneshot_ll8", Reason: fmt.Errorf("%w: too many ranks", framework.ErrUnsupported)},
		{Collective: collective.Reduce, Name: "fetch", Reason: fmt.Errorf("%w: it is for 2 ranks", framework.ErrUnsupported)},
	}
	for name, want := range map[string]string{
		"rnig":            `algorithm "rnig" (did you mean "ring"?): expected one of ring zerocopy`,
		"best":            `algorithm "best": expected one of ring zerocopy`,
		"oneshot_ll8":     `algorithm oneshot_ll8 of allreduce is not offered: unsupported: too many ranks: there are ring zerocopy`,
		"oneshot_lamport": `algorithm oneshot_lamport of allreduce is not offered: no transport of this job has it for its device: expected one of ring zerocopy`,
		"fetch":           `algorithm "fetch": expected one of ring zerocopy`,
		"?":               `expected one of ring zerocopy; oneshot_ll8 is not offered: unsupported: too many ranks`,
	} {
		if err := NoSuch(offered, unplaced, collective.AllReduce, name); !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%v: expected %q", err, want)
		}
	}
	if err := NoSuch(offered, unplaced, collective.AllReduce, "oneshot_ll8"); !errors.Is(err, framework.ErrUnsupported) {
		t.Errorf("%v: expected the class of the reason", err)
	}
}

// Where nothing serves a call, the error has the reason of each algorithm.
func TestNothingServes(t *testing.T) {
	refusing := func(name string) *engine.Algorithm {
		a := engine.New(collective.AllReduce, name)
		a.Fits = func(*engine.Query) error { return fmt.Errorf("%w: %s has no room", framework.ErrUnsupported, name) }
		return a
	}
	q := engine.Query{Request: engine.Request{Collective: collective.AllReduce, Type: kernel.Float32, Count: 1, Bytes: 4, Ranks: 2}}
	_, _, err := Find(&Tables{}, []*engine.Algorithm{refusing("ring"), refusing("chunk")}, &q, "")
	if !errors.Is(err, framework.ErrUnavailable) || !strings.HasSuffix(err.Error(), "; unsupported: ring has no room; unsupported: chunk has no room") {
		t.Errorf("%v: expected both reasons", err)
	}
}
