package actor_test

import (
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/kernel/actor"
	"github.com/mscclpp-go/mscclpp/framework/kernel/layouttest"
)

func TestLayoutsAreThoseOfCpp(t *testing.T) {
	originals := layouttest.Read(t, "../testdata/layout.json")
	layouttest.Compare(t, "Step", originals["actor.Step"], actor.Step{})
	layouttest.Compare(t, "Args", originals["actor.Args"], actor.Args{})
	layouttest.Compare(t, "ReduceArgs", originals["actor.ReduceArgs"], actor.ReduceArgs{})
}
