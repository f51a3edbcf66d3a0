package intra

import (
	"bufio"
	"encoding/json"
	"fmt"
	"github.com/mscclpp-go/mscclpp/framework/collective"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/collectives/internal/choose"
	"github.com/mscclpp-go/mscclpp/collectives/internal/choose/model"
)

// sample is one way to make a call, as it was measured.
type sample struct {
	model.Call
	Algorithm  string
	Registered bool
	us         float64
	older      bool // of kernels with longer starts
}

func (s sample) String() string {
	kind := "ordinary"
	if s.Registered {
		kind = "registered"
	}
	return fmt.Sprintf("%s of %d KiB in %s buffers by %s on %d", s.Collective, s.Bytes>>10, kind, s.Algorithm, s.Ranks)
}

// modeled is what the model says that it takes.
func (s sample) modeled() (us float64, known bool) {
	return overH200s(s.Ranks).Time(choose.TraitsOf(s.Algorithm, s.Collective).Cost, s.Call)
}

// at is the point at which algorithms compete.
func (s sample) at() sample {
	return sample{Call: model.Call{Collective: s.Collective, Ranks: s.Ranks, Bytes: s.Bytes}, Registered: s.Registered}
}

// benchLine is what bench writes, as far as it matters here.
type benchLine struct {
	Label      string // of those that chose the table
	Collective string
	Algorithm  string
	Bytes      uint64
	DType      string
	Ranks      int
	Graph      int
	Registered bool
	InPlace    bool    `json:"in_place"`
	US         float64 `json:"time_us"`
}

func readResults(t testing.TB, name string, keep func(benchLine)) {
	t.Helper()
	f, err := os.Open(filepath.Join("..", "..", "..", "docs", "results", "h200", name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	for s.Scan() {
		var l benchLine
		if err := json.Unmarshal(s.Bytes(), &l); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if l.DType == "f16" && l.Graph > 1 && l.Collective != "sendrecv" {
			keep(l)
		}
	}
	if err := s.Err(); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// remarks are times on two GPUs that stand in the comments of the built-in table alone, the
// raw lines of whose runs were not kept, and those of stages, which were measured on 2026-11-21 and
// are in no later file.
const remarks = `
allgather chunk 64M ordinary 135.4
allgather chunk 1G ordinary 2170
alltoall chunk 64M ordinary 153
alltoall chunk 1G ordinary 2365
allreduce twophase_chunk 16M ordinary 103
allreduce twophase_chunk 64M ordinary 455
allreduce twophase_chunk 1G ordinary 6156
reduce chunk 16M ordinary 70.5
reduce chunk 64M ordinary 315
reduce chunk 1G ordinary 4869
allreduce oneshot_ll8 64K ordinary 2.55
allreduce oneshot_ll128 1M ordinary 6.01
allreduce zerocopy 4M registered 17.4
allreduce zerocopy 256M registered 793
allgather direct_ll8 256K ordinary 2.90
allgather push 4M registered 10.4
reducescatter zerocopy 4M registered 12.1
reducescatter zerocopy 1G registered 1604
alltoall direct_ll8 256K ordinary 2.82
alltoall push 4M registered 10.8
broadcast direct_ll8 256K ordinary 2.76
reduce zerocopy 1M registered 8.86
reduce stream_ll128 16M ordinary 61.7
reduce shares 16M ordinary 63.3
reduce shares 4M ordinary 24.9
`

func remarked(t testing.TB) (out []sample) {
	t.Helper()
	for text := range strings.Lines(strings.TrimSpace(remarks)) {
		s := sample{older: true}
		var size uint64
		var unit rune
		var kind, name string
		if _, err := fmt.Sscanf(text, "%s %s %d%c %s %f", &name, &s.Algorithm, &size, &unit, &kind, &s.us); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		s.Collective = parsed(t, name)
		s.Ranks, s.Registered = 2, kind == "registered"
		s.Bytes = size << map[rune]uint{'K': 10, 'M': 20, 'G': 30}[unit]
		out = append(out, s)
	}
	return out
}

// measured is the least time of each way at each point, and of the tables' medians where
// there are some.
func measured(t testing.TB) []sample {
	t.Helper()
	var out []sample
	for ranks, file := range map[int]string{2: "2-gpus.jsonl", 4: "4-gpus.c6b6b86.jsonl"} { // the constants for four are of that run
		final, all := map[benchLine][]float64{}, map[sample][]float64{}
		readResults(t, file, func(l benchLine) {
			us := l.US
			l.US, l.Graph, l.Label = 0, 0, ""
			final[l] = append(final[l], us)
		})
		key := func(l benchLine) sample {
			return sample{Call: model.Call{Collective: parsed(t, l.Collective), Ranks: l.Ranks, Bytes: l.Bytes}, Algorithm: l.Algorithm, Registered: l.Registered, older: ranks == 4}
		}
		for l, us := range final {
			if changed(l, ranks == 4) {
				continue
			}
			slices.Sort(us)
			all[key(l)] = append(all[key(l)], us[len(us)/2])
		}
		known := map[sample]bool{}
		for s := range all {
			known[s] = true
		}
		readResults(t, fmt.Sprintf("%d-gpus.tuning.jsonl", ranks), func(l benchLine) {
			if s := key(l); !known[s] && !changed(l, true) {
				s.older = true
				all[s] = append(all[s], l.US)
			}
		})
		for s, us := range all {
			s.us = slices.Min(us)
			out = append(out, s)
		}
	}
	for ranks, file := range map[int]string{2: "2-gpus.lamport-early.jsonl", 4: "4-gpus.lamport-early.jsonl"} {
		least := map[uint64]float64{}
		readResults(t, file, func(l benchLine) {
			if us, ok := least[l.Bytes]; l.Algorithm == "oneshot_lamport" && !strings.HasPrefix(l.Label, "before") && (!ok || l.US < us) {
				least[l.Bytes] = l.US
			}
		})
		for bytes, us := range least {
			for _, registered := range []bool{false, true} { // the buffers are the same to it
				out = append(out, sample{Call: model.Call{Collective: collective.AllReduce, Ranks: ranks, Bytes: bytes}, Algorithm: "oneshot_lamport", Registered: registered, us: us})
			}
		}
	}
	out = append(out, remarked(t)...)
	slices.SortFunc(out, func(a, b sample) int { return strings.Compare(a.String(), b.String()) })
	return out
}

// changed reports whether a line is of a kernel that there is no more: of those that looked at the host
// so often that this is what they took their time for, of reduces by loads in which all but the root
// took part, of broadcasts in larger pieces, of sums that were tried and dropped, and, in older
// files, of reduces that divided, and of sums by copies with kernels between them.
func changed(l benchLine, older bool) bool {
	switch {
	case l.Label == "looks every 64 polls" && l.Bytes >= 16<<20 && l.Algorithm != "copy",
		l.Collective == "reduce" && l.Algorithm == "zerocopy" && l.Ranks > 2,
		l.Collective == "broadcast" && l.Algorithm == "push" && l.Ranks == 2 && l.Graph == 20,
		older && l.Collective == "reduce" && strings.HasPrefix(l.Algorithm, "direct_"),
		older && l.Algorithm == "copy" && l.Label != "told beside" && (l.Collective == "allreduce" || l.Collective == "reducescatter"),
		(l.Collective == "allreduce" || l.Collective == "reducescatter") && l.Algorithm == "push":
		return true
	}
	return false
}

// now is the time that the sample would take with the kernels of today, which begin earlier.
func (s sample) now() float64 {
	switch {
	case !s.older:
		return s.us
	case s.Bytes <= 64<<10:
		return s.us - 0.7
	}
	return s.us - 0.35
}

func parsed(t testing.TB, name string) collective.Kind {
	t.Helper()
	k, err := collective.Parse(name)
	if err != nil {
		t.Fatal(err)
	}
	return k
}
