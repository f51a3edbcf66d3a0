package interpreted_test

import (
	"cmp"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/collective"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated/interpret"
)

// long is a case with more steps than buffers, in which a block does several lanes, and calls overlap.
var long = shape{ranks: 2, grid: 1, block: 64, launches: 3, bytes: 9001, lanes: 2, chunk: 512, caller: callerAtEnd}

// turns is a case with small slots, and the caller's kernel between calls.
var turns = shape{ranks: 2, grid: 2, block: 64, launches: 2, bytes: 3000, chunk: 512, caller: callerBetween}

// several is turns with several steps through a window, of which each warp has a part: one copies 2 KiB.
var several = shape{ranks: 2, grid: 2, block: 64, launches: 2, bytes: 8200, window: 24 << 10, chunk: 512, caller: callerBetween}

// once is several with one step in a call, so that the next call comes to the same part of the window.
var once = shape{ranks: 2, grid: 2, block: 64, launches: 3, bytes: 8200, window: 60 << 10, chunk: 512, caller: callerBetween}

// casesOf are the cases that have to report a weakening.
func casesOf(e *entry) []shape {
	list := []shape{turns, long}
	if a := e.algorithm(); strings.HasPrefix(a, "switch") && a != "switch_packets" {
		list = []shape{several, long, once}
	}
	if strings.HasSuffix(e.name, "_lamport") { // each half is used again by the launch after the next
		list = append(list, again(2)...)
	}
	if k, ok := e.collective(); ok && k == collective.AllReduce {
		x := list[0]
		x.inPlace = true
		list = append(list, x)
	}
	return list
}

// verdict is the outcome of the runs with a planted weakening.
type verdict int

const (
	unexplained verdict = iota
	found               // reported
	execution           // only the order of execution matters there, which the weaker form keeps
	doubled             // not reported alone, but with others gone
	idle                // not reported even together with all others that are not
)

// plantation is the weakenings of one entry.
type plantation struct {
	t         testing.TB
	s         *interpret.Session
	e         *entry
	text      []string // lines of the image
	cases     []shape
	schedules uint64
	most      []uint64 // instructions, by case
	mutants   []interpret.Mutant
	verdicts  []verdict
	reasons   []string
}

// plant plants each weakening of what an entry executes, one at a time, and looks for why those are not reported that are not.
func plant(t testing.TB, s *interpret.Session, e *entry, text []byte, schedules uint64) *plantation {
	t.Helper()
	_, _, err := s.Image(e.image, text) // anew: it knows what was executed
	must(t, e.image, err)
	p := &plantation{t: t, s: s, e: e, text: strings.Split(string(text), "\n"), cases: casesOf(e), schedules: schedules}
	for _, x := range p.cases {
		stats, err := execute(t, s, e, x, 1, schedules, true)
		must(t, e.String(), err)
		p.most = append(p.most, 10*stats.Instructions/schedules+1e6)
	}
	p.mutants, err = s.Mutants(e.image)
	must(t, e.String(), err)
	p.verdicts, p.reasons = make([]verdict, len(p.mutants)), make([]string, len(p.mutants))
	p.each(func(i int) []int { return []int{i} }, func(i int, report string) {
		p.verdicts[i], p.reasons[i] = found, report
	})
	p.explainExecution()
	p.explainDoubled()
	p.explainIdle()
	must(t, "mutate", s.Mutate())
	return p
}

// each runs the cases with sets of weakenings, one set for each weakening that is unexplained, and says which are reported.
func (p *plantation) each(with func(i int) []int, reported func(i int, report string)) {
	for c := range p.cases {
		p.prepare(c)
		for i, v := range p.verdicts {
			if v != unexplained {
				continue
			}
			if report := p.run(c, with(i)); report != "" {
				reported(i, report)
			}
		}
	}
}

// prepare sets a case.
func (p *plantation) prepare(c int) {
	must(p.t, "mutate", p.s.Mutate())
	j, out := set(p.t, p.s, p.e, p.cases[c])
	j.expect(p.t, out)
}

func (p *plantation) run(c int, planted []int) string {
	must(p.t, "mutate", p.s.Mutate(planted...))
	if _, err := p.s.Run(1, p.schedules, true, p.most[c]); err != nil {
		return err.Error()
	}
	return ""
}

// where is the instruction of a weakening.
func (p *plantation) where(i int) string { return p.mutants[i].Where }

// explainExecution: a relaxed signal or wait whose absence is reported, but not its weakness, is about what was read before.
// Relaxed accesses are enough for that (docs/memory-model.md, docs/interpreter.md).
func (p *plantation) explainExecution() {
	for i, m := range p.mutants {
		how, relaxed := strings.CutSuffix(m.How, " relaxed")
		if !relaxed || p.verdicts[i] != unexplained {
			continue
		}
		for k, other := range p.mutants {
			if other.Where == m.Where && other.How == how+" dropped" && p.verdicts[k] == found {
				p.verdicts[i], p.reasons[i] = execution, "dropped, it is reported: what was read before it is over"
			}
		}
	}
}

// explainDoubled looks for those that are reported once others are gone that are not reported themselves: these order the
// same. It does so in two orders, since what is gone first decides what is reported behind it.
func (p *plantation) explainDoubled() {
	rest := p.those(unexplained)
	p.double(rest)
	slices.Reverse(rest)
	p.double(rest)
}

// explainIdle says why a weakening is not reported with others gone either. One without a known reason gets more schedules,
// outside of CI: some are reported on few.
func (p *plantation) explainIdle() {
	for _, i := range p.those(unexplained) {
		if p.reasons[i] = p.because(i); p.reasons[i] != "" {
			p.verdicts[i] = idle
		}
	}
	if os.Getenv("INTERPRET") == "" && os.Getenv("INTERPRET_ENTRIES") == "" { // CI has no time for that
		return
	}
	p.schedules = moreSchedules
	p.each(func(i int) []int { return []int{i} }, func(i int, report string) {
		p.verdicts[i], p.reasons[i] = found, report
	})
	p.explainExecution()
}

// moreSchedules is how many a weakening gets that is not explained.
const moreSchedules = 50

func (p *plantation) those(v verdict) (list []int) {
	for i, x := range p.verdicts {
		if x == v {
			list = append(list, i)
		}
	}
	return list
}

// double collects weakenings that are not reported even all together. Where another one is reported with these, there are a few
// of them with which it is, and without any of which it is not: of all of these the others order the same.
func (p *plantation) double(list []int) {
	var gone []int
	for _, i := range list {
		if all := append(slices.Clone(gone), i); !p.reported(all) {
			gone = all
			continue
		}
		if p.verdicts[i] == doubled {
			continue
		}
		few := append(fewest(p.reported, []int{i}, gone, false), i)
		for _, k := range few {
			others := slices.DeleteFunc(slices.Clone(few), func(n int) bool { return n == k })
			if p.verdicts[k] == unexplained && !p.reported(others) {
				p.verdicts[k], p.reasons[k] = doubled, "others order the same: "+p.names(others)
			}
		}
	}
}

// reported says whether a set of weakenings is reported, by four schedules: one of each kind of laggard.
func (p *plantation) reported(planted []int) bool {
	for c := range p.cases {
		p.prepare(c)
		must(p.t, "mutate", p.s.Mutate(planted...))
		if _, err := p.s.Run(1, 4, true, p.most[c]); err != nil {
			return true
		}
	}
	return false
}

// fewest are as few of a list as are needed for a report, with those that are gone in any case. It halves the list: most of it
// is not needed, and one at a time would take a run for each. more: gone has grown since it was asked for.
func fewest(reported func(planted []int) bool, gone, list []int, more bool) []int {
	switch {
	case more && reported(gone):
		return nil
	case len(list) < 2:
		return slices.Clone(list)
	}
	half := len(list) / 2
	last := fewest(reported, slices.Concat(gone, list[:half]), list[half:], true)
	return append(fewest(reported, slices.Concat(gone, last), list[:half], len(last) > 0), last...)
}

func TestFewest(t *testing.T) {
	for _, want := range [][]int{{3}, {0, 9}, {2, 3, 7}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}} {
		list, runs := []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, 0
		got := fewest(func(planted []int) bool {
			runs++
			return slices.Contains(planted, 100) && !slices.ContainsFunc(want, func(n int) bool { return !slices.Contains(planted, n) })
		}, []int{100}, list, false)
		if !slices.Equal(got, want) || list[9] != 9 || !slices.IsSorted(list) || runs > 4*len(want)+4 {
			t.Errorf("%v of %v in %d runs, expected %v in at most %d", got, list, runs, want, 4*len(want)+4)
		}
	}
}

func (p *plantation) names(list []int) string {
	var names []string
	for _, k := range list {
		names = append(names, p.mutants[k].How+" at "+p.line(k))
	}
	return strings.Join(names, ", ")
}

// line is the place of a weakening without its text.
func (p *plantation) line(i int) string {
	at, _, _ := strings.Cut(p.where(i), " ")
	return at
}

// number is the line of a weakening in the image.
func (p *plantation) number(i int) int {
	_, text, _ := strings.Cut(p.line(i), ":")
	n, err := strconv.Atoi(text)
	must(p.t, p.where(i), err)
	return n
}

// because says why a weakening of an entry may be idle, by algorithm; "": no reason is known.
func (p *plantation) because(i int) string {
	e, m := p.e, p.mutants[i]
	barrier := m.How == "barrier dropped"
	ofGrid := barrier || strings.Contains(m.Where, ".gpu.") // the barrier of all blocks of a rank, and those of a block in it
	switch algorithm := e.algorithm(); {
	case algorithm == "push" || algorithm == "shares" || algorithm == "fetch" || algorithm == "chain" || algorithm == "zerocopy":
		return "all ranks meet at the start of a call, too: the barrier at its end is for calls of other kernels, and behind it the kernel ends; " +
			"in a pipeline a chunk that has come says that there is room for the next one"
	case e.name == "mscclpp_barrier_switch" && (ofGrid || m.How == "alias fence dropped"):
		return "one thread signals and waits, for what comes before the kernel and behind it; nothing in it touches the window's data"
	case ofGrid && (algorithm == "ll8" || algorithm == "allpair_ll8" || algorithm == "switch_packets"):
		return "a thread sends the packets of a piece to where it has received those of the piece before: each is the answer to one, by the same thread"
	case !barrier && e.name == "mscclpp_transfers_chunk":
		return "it ends a pause: each round looks at all words again, by loads that acquire"
	case barrier && (algorithm == "ll128" || algorithm == "few_ll128") && strings.HasPrefix(e.name, "mscclpp_transfers_"):
		return "behind the last barrier of a lane threads read of the queues alone whether they are empty, which the next lane writes behind its second barrier"
	case ofGrid && algorithm == "twophase_ll8":
		return "a thread stores where it has itself read what it sent, in place too, and a piece has two barriers of all blocks, of which either orders the next piece"
	case algorithm == "chunk" || algorithm == "twophase_chunk" || algorithm == "allpair_chunk":
		if !barrier && (e.name == "mscclpp_reduce_chunk" || e.name == "mscclpp_broadcast_chunk") {
			return ""
		}
		return "ranks fill and read by turns, and there are four slots: that a chunk has come says that the slot of the next one is free, " +
			"and each barrier of a block stands beside another one"
	case (algorithm == "switch" || algorithm == "switch_zerocopy") && p.opens(i):
		return "the first barrier is for what was read in the kernel before, which is over in all blocks when this one begins: only the order of execution matters"
	case algorithm == "switch" || algorithm == "switch_zerocopy":
		switch before, behind := p.window(i); {
		case !before && algorithm == "switch_zerocopy":
			return "the first barrier is for what the kernel before did, which is over in all blocks when this one begins: only the order of execution matters"
		case !behind && algorithm == "switch_zerocopy":
			return "the last barrier is for what was read of the window: behind it the kernel ends, and the next one begins with a meeting of all ranks"
		case !behind:
			return "the last barrier is for what was read of the window, and the kernel ends behind it: only the order of execution matters"
		case barrier && p.beside(i):
			return "another barrier of the block stands beside it, and no access is between"
		case barrier && p.passes(i):
			return "threads go on from it to another barrier of the block, but for one, which has itself waited for all blocks"
		}
	case barrier && p.beside(i):
		return "another barrier of the block stands beside it, and no access is between"
	case barrier && e.name == "mscclpp_steps_signal":
		return "one thread reads, writes and waits"
	}
	return ""
}

// tally counts planted weakenings of one kind by verdict.
type tally [idle + 1]int

func (x *tally) row(t testing.TB, kind string) {
	t.Helper()
	t.Logf("| %s | %d | %d | %d | %d | %d | %d |", kind, x[0]+x[1]+x[2]+x[3]+x[4], x[found], x[execution], x[doubled], x[idle], x[unexplained])
}

// plantedInCI are entries of each way to synchronize: pipes, packets, lines and barriers of all ranks, stores and loads.
const plantedInCI = "allgather_shares,alltoall_ll8,broadcast_stream_ll128,reduce_direct_ll128,reducescatter_zerocopy"

// leastReported is how many of 100 weakenings are reported at least, or shown to be about execution, or doubled.
const leastReported = 78

// Weakened orders are reported, or nothing needs them: those of some kernels, or of all.
func TestPlantedWeakeningsAreFound(t *testing.T) {
	s := start(t)
	list, texts := entries(t, "sm_90")
	list = slices.DeleteFunc(list, func(e *entry) bool { return !frequent(e) })
	only, schedules := plantedInCI, uint64(4)
	if os.Getenv("INTERPRET") == "full" {
		only, schedules = "", 50
	}
	if only = cmp.Or(os.Getenv("INTERPRET_ENTRIES"), only); only != "" {
		list = slices.DeleteFunc(list, func(e *entry) bool {
			return !slices.Contains(strings.Split(only, ","), strings.TrimPrefix(e.name, "mscclpp_"))
		})
	}
	all, sum := map[string]*tally{}, tally{}
	for _, e := range list {
		p := plant(t, s, e, texts[e.image], schedules)
		for i, m := range p.mutants {
			if p.verdicts[i] != found {
				t.Logf("%s: %s by %s: %s", [...]string{"unexplained", "", "execution", "doubled", "idle"}[p.verdicts[i]], m.How, p.where(i), p.reasons[i])
			}
			if all[m.How] == nil {
				all[m.How] = &tally{}
			}
			all[m.How][p.verdicts[i]]++
			sum[p.verdicts[i]]++
		}
	}
	t.Log("| kind | planted | reported | for execution only | doubled | idle | unexplained |")
	for _, how := range slices.SortedFunc(maps.Keys(all), cmp.Compare[string]) {
		all[how].row(t, how)
	}
	sum.row(t, "all")
	known := sum[found] + sum[execution] + sum[doubled]
	planted := known + sum[idle] + sum[unexplained]
	if planted == 0 || sum[unexplained]*20 > planted {
		t.Errorf("%d of %d planted weakenings are not reported and not explained, expected at most 5 %%", sum[unexplained], planted)
	}
	if os.Getenv("INTERPRET_ENTRIES") == "" && known*100 < planted*leastReported {
		t.Errorf("%d of %d planted weakenings are reported, or shown to be for execution only or doubled, expected %d %%", known, planted, leastReported)
	}
}
