package matrix

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/mscclpp-go/mscclpp/bench"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// anyCase draws a case that is possible for a group of the given size.
func anyCase(t *rapid.T, ranks int) Case {
	c := Case{
		Collective: rapid.SampledFrom(bench.All()).Draw(t, "collective"),
		Type:       kernel.DataType(rapid.IntRange(0, kernel.DataTypes-1).Draw(t, "type")),
		Count:      rapid.IntRange(0, 1<<30).Draw(t, "count"),
		Offset:     rapid.IntRange(0, 9).Draw(t, "offset"),
		Algorithm:  rapid.SampledFrom([]string{"", "ring", "two-phase"}).Draw(t, "algorithm"),
		Registered: rapid.Bool().Draw(t, "registered"),
	}
	if c.Collective.Reduces() {
		c.Op = kernel.Op(rapid.IntRange(0, kernel.Ops-1).Draw(t, "op"))
	}
	if c.Collective.Rooted() {
		c.Root = rapid.IntRange(0, ranks-1).Draw(t, "root")
	}
	if c.Collective.HasInPlace() {
		c.InPlace = rapid.Bool().Draw(t, "in place")
	}
	return c
}

// A failure prints its case so that it can be run alone: what is pasted must be the
// same case, in whatever order its words come.
func TestAnyCaseSurvivesPrinting(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := anyCase(t, 8)
		text := c.String()
		words := strings.Split(text, ",")
		mixed := append(words[:1:1], rapid.Permutation(words[1:]).Draw(t, "another order")...)
		for _, spelling := range []string{text, strings.Join(mixed, ","), strings.Join(mixed, ", ")} {
			if back, err := ParseCase(spelling); err != nil || back != c {
				t.Fatalf("ParseCase(%q) = %+v, %v; want %+v", spelling, back, err, c)
			}
		}
		if strings.ContainsAny(text, " '\"$") {
			t.Fatalf("%q does not survive a shell", text)
		}
	})
}

// For any input, the answer is a case that prints as it was understood, or an error that quotes it.
func FuzzParseCase(f *testing.F) {
	f.Add("allreduce,f32,sum,1023,in-place,registered,offset=1,algorithm=ring")
	f.Add("gather,i8,3,root=1")
	f.Add("sendrecv,f64,0,,")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := ParseCase(text)
		if err != nil {
			if !errors.Is(err, framework.ErrInvalid) {
				t.Fatalf("%q: %v, want one of the class invalid", text, err)
			}
			return
		}
		if back, err := ParseCase(c.String()); err != nil || back != c {
			t.Fatalf("%q is %+v, which prints as %q: %+v, %v", text, c, c, back, err)
		}
	})
}

// Every size above 0 has at least one element, and none takes more room than one
// more element for every rank.
func TestSizesAreRoundedUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ranks := rapid.IntRange(1, 16).Draw(t, "ranks")
		c := anyCase(t, ranks)
		size := c.Type.Size()
		bytes := rapid.Int64Range(0, 1<<30).Draw(t, "bytes")
		n := countFor(c.Collective, bytes, size, ranks)
		if (n == 0) != (bytes == 0) {
			t.Fatalf("%s of %d bytes has %d elements", c.Collective, bytes, n)
		}
		room := bench.Larger(c.Collective, n, ranks) * int64(size)
		if c.Collective != bench.AllToAllV && room < bytes || room > bytes+int64(size*ranks) {
			t.Fatalf("%s of %d bytes takes %d, elements of %d on %d ranks", c.Collective, bytes, room, size, ranks)
		}
	})
}

// The room is enough for every call at its offset, with what guards its end.
func TestRoomIsEnough(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ranks := rapid.IntRange(1, 8).Draw(t, "ranks")
		c := anyCase(t, ranks)
		c.Count %= 10000
		room := Room([]Case{{Collective: bench.AllReduce}, c}, ranks)
		for rank := range ranks {
			call := c.call(rank, ranks)
			in, out := c.Collective.Elements(c.Count, ranks, rank, c.Root)
			if call.V != nil {
				in, out = call.V.Totals()
			}
			if need := int64((max(in, out)+c.Offset)*c.Type.Size() + guard); need > room {
				t.Fatalf("%s on rank %d of %d needs %d bytes, the room is %d", c, rank, ranks, need, room)
			}
		}
	})
}

// Half of an integer would be nothing: integers are scaled by a whole number, which
// keeps premulsum from being a sum of zeros.
func TestScaleFitsTheType(t *testing.T) {
	for ty := range kernel.DataType(kernel.DataTypes) {
		call := Case{Collective: bench.AllReduce, Type: ty, Op: kernel.PreMulSum, Count: 1}.call(0, 2)
		whole := call.Scale == float64(int(call.Scale))
		name := ty.String()
		integer := strings.HasPrefix(name, "i") || strings.HasPrefix(name, "u")
		if call.Scale == 0 || call.Scale == 1 || whole != integer {
			t.Errorf("%s is scaled by %v", ty, call.Scale)
		}
	}
}

// Cases of a tier that walks every combination still differ in alignment and root.
func TestScatterMixes(t *testing.T) {
	offsets, roots := map[int]int{}, map[int]int{}
	for n := range 1000 {
		c := Case{Collective: bench.Broadcast}
		c.scatter(n, 4)
		offsets[c.Offset]++
		roots[c.Root]++
		plain := Case{Collective: bench.AllReduce}
		if plain.scatter(n, 4); plain.Root != 0 {
			t.Fatalf("case %d: an all-reduce has root %d", n, plain.Root)
		}
	}
	for _, seen := range []map[int]int{offsets, roots} {
		if len(seen) != 2 {
			t.Errorf("values %v, want two", seen)
		}
		for value, times := range seen {
			if times < 300 {
				t.Errorf("%d in %d of 1000 cases", value, times)
			}
		}
	}
}

func TestEveryFaultIsNamed(t *testing.T) {
	ok := verdict{Digests: [2]uint32{5, 5}}
	got := judge(Case{Collective: bench.AllReduce}, []verdict{{Wrong: 3}, ok, {Error: "no memory"}, {Digests: [2]uint32{1, 2}}})
	for _, want := range []string{"rank 0: 3 wrong elements", "rank 2: no memory", "rank 3: two calls on the same input differ"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %q", want, got)
		}
	}
	if strings.Contains(got, "rank 1") || strings.Contains(got, "bit for bit") {
		t.Errorf("%q blames a rank that is right", got)
	}
}
