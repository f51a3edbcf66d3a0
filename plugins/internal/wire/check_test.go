package wire

import (
	"errors"
	"math"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	pb "github.com/mscclpp-go/mscclpp/plugins/proto"
)

func TestNonsenseIsRefused(t *testing.T) {
	mapping := framework.Mapping{Role: framework.RolePeer, Bytes: 1}
	with := func(s framework.Step) framework.Attachment {
		return framework.Attachment{Mappings: []framework.Mapping{mapping}, Steps: []framework.Step{s}}
	}
	good := []framework.Step{
		{Op: framework.StepMap}, {Op: framework.StepImport}, {Op: framework.StepBarrier, Mapping: 9},
		{Op: framework.StepBind, Object: 3, Slot: 7, Offset: 1, Bytes: math.MaxUint64 - 1},
	}
	for _, s := range good {
		if err := checkAttachment(with(s)); err != nil {
			t.Errorf("step %+v: %v", s, err)
		}
	}
	bad := map[string]error{
		"verb 0":        checkAttachment(with(framework.Step{})),
		"verb 6":        checkAttachment(with(framework.Step{Op: 6})),
		"mapping 1":     checkAttachment(with(framework.Step{Op: framework.StepMap, Mapping: 1})),
		"mapping -1":    checkAttachment(with(framework.Step{Op: framework.StepImport, Mapping: -1})),
		"object -1":     checkAttachment(with(framework.Step{Op: framework.StepAdd, Object: -1})),
		"slot -1":       checkAttachment(with(framework.Step{Op: framework.StepBind, Slot: -1})),
		"step range":    checkAttachment(with(framework.Step{Op: framework.StepBind, Offset: math.MaxUint64, Bytes: 1})),
		"role 0":        checkAttachment(framework.Attachment{Mappings: []framework.Mapping{{}}}),
		"peer -2":       checkAttachment(framework.Attachment{Mappings: []framework.Mapping{{Role: framework.RolePeer, Peer: -2}}}),
		"mapping range": checkAttachment(framework.Attachment{Mappings: []framework.Mapping{{Role: 1, Offset: 1, Bytes: math.MaxUint64}}}),
		"no name":       checkDescription(framework.Description{}),
		"kind 4":        checkDescription(framework.Description{Name: "x", Channels: []framework.Kind{4}}),
		"object kind":   checkEndpoint(framework.Endpoint{Create: []framework.Object{{Bytes: 1, Ranks: 1}}}),
		"object ranks":  checkEndpoint(framework.Endpoint{Create: []framework.Object{{Kind: 1, Bytes: 1, Ranks: -1}}}),
	}
	for name, err := range bad {
		if !errors.Is(err, framework.ErrPlugin) {
			t.Errorf("%s: got %v, expected ErrPlugin", name, err)
		}
	}
}

// TestEnumsDoNotWrap: 257 must not become 1.
func TestEnumsDoNotWrap(t *testing.T) {
	for _, n := range []int32{-1, 256, 257, math.MaxInt32, math.MinInt32} {
		if k := enum[framework.Kind](pb.Kind(n)); k != 0 {
			t.Errorf("kind %d became %d, expected 0", n, k)
		}
	}
	if k := enum[framework.Kind](pb.Kind_KIND_SWITCH); k != framework.KindSwitch {
		t.Errorf("switch became %v", k)
	}
	if n := i32(math.MaxInt); n != math.MaxInt32 {
		t.Errorf("a large rank became %d", n)
	}
	if n := i32(-1); n != -1 {
		t.Errorf("-1 became %d", n)
	}
}
