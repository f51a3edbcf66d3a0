package launch

import (
	"slices"
	"testing"
)

func TestOverlay(t *testing.T) {
	got := overlay([]string{"A=1", "B=1", "A=2", "D=1", "E=1"}, []string{"B=2", "E=2"}, "D", "E")
	if want := []string{"A=2", "B=2", "E=2"}; !slices.Equal(got, want) {
		t.Errorf("%v, expected %v", got, want)
	}
}
