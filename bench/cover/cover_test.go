package cover

import (
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

// missing returns the pairs that all possible cases contain and cases do not, by
// walking the whole space: slow, and nothing like the code under test.
func missing(s Space, cases [][]int) int {
	type pair [4]int
	want := map[pair]bool{}
	add := func(c []int, present bool) {
		for a := range c {
			for b := a + 1; b < len(c); b++ {
				key := pair{a, c[a], b, c[b]}
				if present || !want[key] {
					want[key] = present
				}
			}
			if len(c) == 1 && (present || !want[pair{0, c[0]}]) {
				want[pair{0, c[0]}] = present
			}
		}
	}
	for c := range s.All {
		add(c, false)
	}
	for _, c := range cases {
		add(c, true)
	}
	n := 0
	for _, present := range want {
		if !present {
			n++
		}
	}
	return n
}

func TestPairsCoverEverythingPossible(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Space{Values: rapid.SliceOfN(rapid.IntRange(1, 5), 1, 5).Draw(t, "values")}
		banned := rapid.SliceOfN(rapid.SliceOfN(rapid.IntRange(0, 4), 4, 4), 0, 6).Draw(t, "banned pairs")
		s.Allowed = func(c []int) bool {
			for _, b := range banned {
				i, j := b[0]%len(c), b[2]%len(c)
				if i != j && c[i] == b[1] && c[j] == b[3] {
					return false
				}
			}
			return true
		}
		cases := s.Pairs()
		for _, c := range cases {
			for at, v := range c {
				if v < 0 || v >= s.Values[at] {
					t.Fatalf("case %v: parameter %d has no value %d", c, at, v)
				}
			}
			if !s.Allowed(c) {
				t.Fatalf("case %v is not possible", c)
			}
		}
		if n := missing(s, cases); n != 0 {
			t.Fatalf("%d pairs are in no case of %v", n, cases)
		}
		if again := s.Pairs(); !reflect.DeepEqual(cases, again) {
			t.Fatalf("two runs differ: %v and %v", cases, again)
		}
	})
}

func TestPairsAreFew(t *testing.T) {
	s := Space{Values: []int{13, 12, 9, 6, 4, 2, 2}}
	cases := s.Pairs()
	if n := missing(s, cases[:len(cases)-1]); n == 0 {
		t.Error("the last case adds nothing")
	}
	// 156 is the least possible, the full product 134,784.
	if len(cases) < 156 || len(cases) > 220 {
		t.Errorf("%d cases, want 156 to 220", len(cases))
	}
}

func TestOneParameterAndNone(t *testing.T) {
	if got := (Space{Values: []int{3}}).Pairs(); !reflect.DeepEqual(got, [][]int{{0}, {1}, {2}}) {
		t.Errorf("one parameter of three values gives %v", got)
	}
	if got := (Space{}).Pairs(); len(got) != 0 {
		t.Errorf("no parameter gives %v", got)
	}
	if got := (Space{Values: []int{2, 0}}).Pairs(); len(got) != 0 {
		t.Errorf("a parameter without values gives %v", got)
	}
}

func TestAllStopsAndRepeats(t *testing.T) {
	s := Space{Values: []int{2, 3}, Allowed: func(c []int) bool { return c[0] != 1 || c[1] != 2 }}
	var got [][]int
	for c := range s.All {
		got = append(got, append([]int(nil), c...))
		if len(got) == 4 {
			break
		}
	}
	if want := [][]int{{0, 0}, {0, 1}, {0, 2}, {1, 0}}; !reflect.DeepEqual(got, want) {
		t.Errorf("All gives %v, want %v", got, want)
	}
}
