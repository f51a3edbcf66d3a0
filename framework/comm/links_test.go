package comm

import (
	"slices"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
)

func TestLinksAreSorted(t *testing.T) {
	a, b := &Transport{Name: "a"}, &Transport{Name: "b"}
	c := &Communicator{links: map[linkKey]*link{
		{framework.KindPort, 0, 0}:   {transport: b},
		{framework.KindMemory, 2, 0}: {transport: a},
		{framework.KindMemory, 0, 0}: {transport: b},
		{framework.KindPort, 0, 1}:   {transport: b},
	}}
	want := []Link{{framework.KindMemory, 0, b}, {framework.KindMemory, 2, a}, {framework.KindPort, 0, b}}
	if got := c.Links(); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
