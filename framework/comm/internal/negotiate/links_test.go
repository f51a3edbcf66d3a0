package negotiate

import (
	"slices"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm/internal/transport"
)

func TestLinksAreSorted(t *testing.T) {
	a, b := &transport.Transport{Name: "a"}, &transport.Transport{Name: "b"}
	n := &Negotiator{links: map[Key]*Link{
		{framework.KindPort, 0, 0}:   {Transport: b},
		{framework.KindMemory, 2, 0}: {Transport: a},
		{framework.KindMemory, 0, 0}: {Transport: b},
		{framework.KindPort, 0, 1}:   {Transport: b},
	}}
	want := []Listed{{framework.KindMemory, 0, b}, {framework.KindMemory, 2, a}, {framework.KindPort, 0, b}}
	if got := n.Links(); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
