package collective

import (
	"slices"
	"strings"
	"testing"
)

func TestAmong(t *testing.T) {
	for _, k := range All() {
		want := k.String()
		for _, name := range []string{want, strings.ToUpper(want), want[:2] + "-" + want[2:], want[:3] + "_" + want[3:]} {
			if got, err := Among(name, All()); err != nil || got != k {
				t.Errorf("%q is %v, %v: expected %v", name, got, err, k)
			}
		}
	}
	few := []Kind{AllReduce, Broadcast}
	for _, name := range []string{"", "-", "allreduc", "allreduces", "all reduce", Gather.String()} {
		if _, err := Among(name, few); err == nil || !strings.HasSuffix(err.Error(), ": expected one of allreduce, broadcast") {
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
	if len(slices.Compact(all)) != 11 || Names()[0] != AllReduce.String() {
		t.Errorf("%v: expected 11 names, all-reduce first", Names())
	}
}

// Numbers are in signatures of jobs whose ranks may have been built at different times.
func TestNumbers(t *testing.T) {
	want := "allreduce allgather reducescatter broadcast reduce alltoall barrier alltoallv gather scatter sendrecv"
	var names []string
	for k := Kind(1); k < Kinds; k++ {
		names = append(names, k.String())
		if got, err := Parse(k.String()); err != nil || got != k || !k.Valid() {
			t.Errorf("%v is number %d, %v: expected %d", k, got, err, k)
		}
	}
	if got := strings.Join(names, " "); got != want {
		t.Errorf("%s: expected %s", got, want)
	}
	for _, k := range []Kind{0, Kinds, 1 << 31} {
		if k.Valid() || k.Reduces() || k.Rooted() || k.Wide() || k.HasInPlace() || !strings.HasPrefix(k.String(), "collective(") {
			t.Errorf("%v passes for a collective", k)
		}
	}
	if _, err := Parse("all-reduce"); err == nil || !strings.Contains(err.Error(), "expected one of allreduce allgather") {
		t.Errorf("%v: expected the names", err)
	}
}
