package interpreted_test

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated/interpret"
)

// opens says whether a weakening is in front of all that the entry does to the window.
func (p *plantation) opens(i int) bool {
	for n := p.number(i); n < len(p.text) && p.text[n] != "}"; n++ {
		if strings.Contains(p.text[n], "multimem.st") {
			return !slices.ContainsFunc(p.text[p.begin(i):n], func(line string) bool { return strings.Contains(line, "multimem.ld_reduce") })
		}
	}
	return false
}

// begin is the line of the entry.
func (p *plantation) begin(i int) int {
	n := p.number(i)
	for n > 0 && !strings.HasPrefix(p.text[n], ".visible .entry") {
		n--
	}
	return n
}

// beside says whether all ways to a barrier, or from it, come by another one of the block, with no access to memory between.
func (p *plantation) beside(i int) bool {
	at := p.number(i) - 1
	for n := p.before(at); n > 0 && !access.MatchString(p.text[n]); n = p.before(n) {
		if blockBarrier.MatchString(p.text[n]) {
			return true
		}
	}
	for n := at + 1; n < len(p.text) && !access.MatchString(p.text[n]) && !strings.Contains(p.text[n], "bra"); n++ {
		if blockBarrier.MatchString(p.text[n]) {
			return true
		}
	}
	return false
}

// before is the line in front of one: of a label that a single branch leads to, that branch.
func (p *plantation) before(n int) int {
	label, isLabel := strings.CutSuffix(p.text[n-1], ":")
	if !isLabel || !strings.HasPrefix(p.text[n-2], "\tbra.uni") {
		return n - 1
	}
	from := 0
	for k, line := range p.text {
		if strings.HasSuffix(line, "\t"+label+";") {
			if from != 0 {
				return n - 1
			}
			from = k
		}
	}
	return from
}

// flow is where the lines of the entry of a weakening lead to: from first on, and by line.
func (p *plantation) flow(i int) (first int, to [][]int) {
	first = p.begin(i)
	last := first + slices.Index(p.text[first:], "}")
	labels := map[string]int{}
	to = make([][]int, last+1)
	for n := first; n < last; n++ {
		if label, ok := strings.CutSuffix(p.text[n], ":"); ok {
			labels[label] = n
		}
	}
	for n := first; n < last; n++ {
		if m := branch.FindStringSubmatch(p.text[n]); m != nil {
			to[n] = append(to[n], labels[m[2]])
			if m[1] != "" { // always
				continue
			}
		}
		if p.text[n] != "\tret;" {
			to[n] = append(to[n], n+1)
		}
	}
	return first, to
}

// reach adds to seen all lines that come behind one, and does not go on behind those where it is to stop.
func reach(to [][]int, n int, seen []bool, stop func(n int) bool) {
	for list := []int{n}; len(list) > 0; {
		n, list = list[0], list[1:]
		for _, next := range to[n] {
			if !seen[next] {
				seen[next] = true
				if !stop(next) {
					list = append(list, next)
				}
			}
		}
	}
}

// window says whether the entry comes from an access to the window's data to a weakening, and from there to one.
func (p *plantation) window(i int) (before, behind bool) {
	first, to := p.flow(i)
	at, never := p.number(i)-1, func(int) bool { return false }
	here, there := make([]bool, len(to)), make([]bool, len(to))
	reach(to, at, here, never)
	for n := first; n < len(to); n++ {
		if windowData.MatchString(p.text[n]) {
			behind = behind || here[n]
			reach(to, n, there, never)
		}
	}
	return there[at], behind
}

// passes says whether threads go from a barrier to another one of the block with no access to memory between.
func (p *plantation) passes(i int) bool {
	_, to := p.flow(i)
	seen := make([]bool, len(to))
	reach(to, p.number(i)-1, seen, func(n int) bool { return memoryAccess.MatchString(p.text[n]) || blockBarrier.MatchString(p.text[n]) })
	for n := range seen {
		if seen[n] && blockBarrier.MatchString(p.text[n]) {
			return true
		}
	}
	return false
}

// Accesses to the window in front of a weakening, and behind it, are found along branches, not in the order of the text.
func TestWindowOfAWeakening(t *testing.T) {
	text := strings.Split(`.visible .entry other
{
	multimem.st.relaxed.sys.global.v4.f32 [%rd1], {};
}
.visible .entry mscclpp_some_switch
{
	bar.sync 	0;
	@%p1 bra 	$L__BB0_3;
	fence.proxy.alias;
	bra.uni 	$L__BB0_4;
$L__BB0_2:
	fence.proxy.alias;
	bra.uni 	$L__BB0_5;
$L__BB0_3:
	bar.sync 	0;
	multimem.ld_reduce.relaxed.sys.global.add.v4.f32 {}, [%rd1];
	@%p2 bra 	$L__BB0_3;
	bra.uni 	$L__BB0_2;
$L__BB0_4:
	fence.proxy.alias;
$L__BB0_5:
	ret;
$L__BB0_6:
	multimem.ld_reduce.relaxed.sys.global.add.v4.f32 {}, [%rd1];
	bra.uni 	$L__BB0_5;
}`, "\n")
	p := &plantation{t: t, text: text}
	for line, want := range map[int][2]bool{7: {false, true}, 9: {false, false}, 12: {true, false}, 15: {true, true}, 19: {false, false}} {
		p.mutants = []interpret.Mutant{{Where: "image:" + strconv.Itoa(line) + " it"}}
		if before, behind := p.window(0); before != want[0] || behind != want[1] {
			t.Errorf("line %d, %s: %v before and %v behind it: expected %v", line, text[line-1], before, behind, want)
		}
	}
	for line, want := range map[int]bool{7: true, 15: false} {
		p.mutants = []interpret.Mutant{{Where: "image:" + strconv.Itoa(line) + " it"}}
		if got := p.passes(0); got != want {
			t.Errorf("line %d: threads go on to another barrier: %v, expected %v", line, got, want)
		}
	}
	// A barrier stands beside one that the single branch to its label comes from.
	p.text = strings.Split("{\n\tbar.red.and.pred \t%p2, 0, %p1;\n\t@%p1 bra \t$L1;\n\tst.global.u32 [%rd1], 0;\n\tbra.uni \t$L2;\n$L1:\n\tbar.sync \t0;\n\tst.global.u32 [%rd1], 0;\n$L2:", "\n")
	p.mutants = []interpret.Mutant{{Where: "image:7 it"}}
	if !p.beside(0) {
		t.Error("the barrier stands beside another one")
	}
}

var (
	blockBarrier = regexp.MustCompile(`\tbar\.(sync|red)`)
	branch       = regexp.MustCompile(`\bbra(\.uni)?\s+(\$\w+);`)
	windowData   = regexp.MustCompile(`multimem\.(st|ld_reduce)`)
	memoryAccess = regexp.MustCompile(`\t(@!?%p\d+ )?(ld\.(global|relaxed|acquire|volatile|shared)|st|atom|red|multimem|call)\.?`)
	access       = regexp.MustCompile(`^\t(@!?%p\d+ )?(ld|st|atom|red|multimem|call)\.|^\$|^}`)
)
