package framework

import (
	"errors"
	"testing"
)

func TestKindRoundTrip(t *testing.T) {
	for _, k := range []Kind{KindMemory, KindPort, KindSwitch} {
		if got, err := ParseKind(k.String()); err != nil || got != k {
			t.Errorf("ParseKind(%q) = %v, %v", k.String(), got, err)
		}
	}
	for _, s := range []string{"", "Memory", "kind(4)", "kind(0)"} {
		if k, err := ParseKind(s); !errors.Is(err, ErrInvalid) {
			t.Errorf("ParseKind(%q) = %v, %v: want ErrInvalid", s, k, err)
		}
	}
	if got := Kind(9).String(); got != "kind(9)" {
		t.Errorf("Kind(9).String() = %q", got)
	}
}

func TestDescriptionHas(t *testing.T) {
	d := Description{Channels: []Kind{KindMemory, KindSwitch}}
	if !d.Has(KindMemory) || !d.Has(KindSwitch) || d.Has(KindPort) {
		t.Errorf("Has disagrees with Channels %v", d.Channels)
	}
}

func TestEndpointConfigRoot(t *testing.T) {
	for _, c := range []struct {
		config EndpointConfig
		want   bool
	}{
		{EndpointConfig{Rank: 2, Ranks: []int{2, 5, 9}}, true},
		{EndpointConfig{Rank: 5, Ranks: []int{2, 5, 9}}, false},
		{EndpointConfig{}, false},
	} {
		if got := c.config.Root(); got != c.want {
			t.Errorf("Root() of rank %d in %v = %v", c.config.Rank, c.config.Ranks, got)
		}
	}
}
