package collective

import (
	"slices"
	"strings"
	"testing"
)

func TestFind(t *testing.T) {
	for i, want := range Names() {
		for _, name := range []string{want, strings.ToUpper(want), want[:2] + "-" + want[2:], want[:3] + "_" + want[3:]} {
			if got, err := Find(name, Names()); err != nil || got != i {
				t.Errorf("%q is number %d, %v: expected %d", name, got, err, i)
			}
		}
	}
	few := []string{AllReduce, Broadcast}
	if i, err := Find("Broad-Cast", few); err != nil || i != 1 {
		t.Errorf("%d, %v: expected the second", i, err)
	}
	for _, name := range []string{"", "-", "allreduc", "allreduces", "all reduce", Gather} {
		if _, err := Find(name, few); err == nil || !strings.HasSuffix(err.Error(), ": expected one of allreduce, broadcast") {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// Names are typed, and found whatever their case: they are plain, and no two are the same.
func TestNames(t *testing.T) {
	all := Names()
	for _, n := range all {
		if strings.Trim(n, "abcdefghijklmnopqrstuvwxyz") != "" || n == "" {
			t.Errorf("%q: expected small letters", n)
		}
	}
	slices.Sort(all)
	if len(slices.Compact(all)) != 11 || Names()[0] != AllReduce {
		t.Errorf("%v: expected 11 names, all-reduce first", Names())
	}
}
