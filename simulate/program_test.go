package simulate

import (
	"errors"
	"strings"
	"testing"
)

// Where the choice changes on a cluster of GPUs.
func TestProgramChooses(t *testing.T) {
	two, many, alone := cluster(t, 2, 8), cluster(t, 1024, 8), cluster(t, 4, 1)
	for _, x := range []struct {
		program Program
		c       Collective
		on      Cluster
		most    int64 // bytes of the first
		a, b    Algorithm
	}{
		{Program{}, AllReduce, two, 32 << 10, SmallWhole, LargeDirect},
		{Program{}, Broadcast, cluster(t, 64, 8), 32 << 10, SmallWhole, LargeDirect},
		{Program{}, AllToAll, two, 64 << 10, Small, FlatDirect}, // of which 32 KiB are for a rank elsewhere
		{Program{}, AllToAll, cluster(t, 8, 8, 4), 192 << 10, Small, FlatDirect},
		{Program{}, AllGather, many, 4 << 10, SmallWhole, LargeDirect}, // slots are smaller than 32 KiB
		{Program{Scratch: 512 << 20}, AllGather, many, 8 << 10, SmallWhole, LargeDirect},
		{Program{}, ReduceScatter, alone, 1 << 20, FlatDirect, FlatDirect},
		{Program{}, Broadcast, alone, 1 << 20, LargeDirect, LargeDirect},
		{Program{Direct: true}, AllReduce, two, 128<<10 - 1, Small, LargeDirect},
		{Program{Direct: true}, AllReduce, alone, 16<<10 - 1, Small, LargeDirect},
		{Program{Direct: true}, AllReduce, cluster(t, 2, 8, 4), 32 << 10, SmallWhole, LargeDirect},
		{Program{Direct: true}, Broadcast, two, 32 << 10, SmallWhole, LargeDirect},
	} {
		a, err1 := x.program.Chooses(x.c, x.on, x.most)
		b, err2 := x.program.Chooses(x.c, x.on, x.most+1)
		if err := errors.Join(err1, err2); err != nil || a != x.a || b != x.b {
			t.Errorf("%s over %v with %+v: %s up to %d bytes, then %s, %v: expected %s and %s", x.c, x.on, x.program, a, x.most, b, err, x.a, x.b)
		}
		if x.program.Scratch == 0 && (!InProgram(x.c, x.on, x.most, a) || !InProgram(x.c, x.on, x.most+1, b)) {
			t.Errorf("%s over %v: what is chosen is not in the program", x.c, x.on)
		}
	}
	if _, err := (Program{}).Chooses(AllReduce, cluster(t, 1, 8), 1); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "expected 2 or more") {
		t.Errorf("one host: %v", err)
	}
}

// Algorithms that cannot be run are not in the program.
func TestNotInProgram(t *testing.T) {
	two := cluster(t, 2, 8)
	for _, x := range []struct {
		c     Collective
		bytes int64
		a     Algorithm
		in    bool
	}{
		{AllReduce, 1 << 10, FlatRing, false}, {AllReduce, 1 << 30, LargeRing, false}, {AllReduce, 1 << 30, LargeDoubling, false},
		{AllReduce, 256 << 10, Small, false}, {AllReduce, 64 << 10, Small, true}, {AllReduce, 64 << 10, SmallWhole, false}, {AllReduce, 1 << 10, SmallWhole, true},
		{AllToAll, 1 << 10, LargeDirect, false}, {AllToAll, 1 << 10, LargeDoubling, false}, {AllToAll, 1 << 10, FlatDirect, true}, {AllToAll, 1 << 20, Small, false},
		{Broadcast, 1 << 10, Small, false}, {Broadcast, 1 << 10, LargeDirect, true}, {Broadcast, 1 << 10, FlatDirect, false},
	} {
		if in := InProgram(x.c, two, x.bytes, x.a); in != x.in {
			t.Errorf("%s of %d bytes by %s is in the program: %v, expected %v", x.c, x.bytes, x.a, in, x.in)
		}
	}
}
