package simulate

import (
	"bufio"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// results is the folder that all measured times of this project are in.
const results = "../docs/results"

// benchLine is what bench writes, as far as it matters here.
type benchLine struct {
	Collective string
	Algorithm  string
	Bytes      int64
	Ranks      int
	Graph      int
	Registered bool
	InPlace    bool    `json:"in_place"`
	US         float64 `json:"time_us"`
}

func readLines(t *testing.T, file string) (all []benchLine) {
	t.Helper()
	f, err := os.Open(filepath.Join(results, file))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		var l benchLine
		if err := json.Unmarshal(s.Bytes(), &l); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all = append(all, l)
	}
	return all
}

// call is what is compared: a collective of so many bytes.
type call struct {
	collective string
	bytes      int64
}

// best is how long calls of GPUs take by a file: as in docs/performance-h200.md the
// better of in place and out of place, each of which is the median of three jobs or
// more.
func best(t *testing.T, file string) map[call]benchLine {
	t.Helper()
	type variant struct {
		call
		inPlace bool
	}
	found := map[variant][]benchLine{}
	for _, l := range readLines(t, file) {
		if l.Registered && l.Graph > 1 {
			v := variant{call{l.Collective, l.Bytes}, l.InPlace}
			found[v] = append(found[v], l)
		}
	}
	all := map[call]benchLine{}
	for v, lines := range found {
		if len(lines) < 3 { // tried beside the table
			continue
		}
		l := lines[0]
		l.US = medianOf(lines)
		if before, ok := all[v.call]; !ok || l.US < before.US {
			all[v.call] = l
		}
	}
	if len(all) < 60 {
		t.Fatalf("%s has %d calls with three jobs: expected 60 or more", file, len(all))
	}
	return all
}

func text(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(results, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func medianOf(lines []benchLine) float64 {
	us := make([]float64, len(lines))
	for i, l := range lines {
		us[i] = l.US
	}
	return median(us)
}

func median(v []float64) float64 {
	slices.Sort(v)
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// between is the rate at which the time of a call grows with what a rank sends, and what
// the call takes beside that.
func between(all map[call]benchLine, collective string, low, high int64, sent func(bytes int64) float64) (rate, beside float64) {
	a, b := all[call{collective, low}], all[call{collective, high}]
	rate = (sent(high) - sent(low)) / (b.US - a.US)
	return rate / 1e3, a.US - sent(low)/rate
}

// The parameters of links are those that docs/scaling.md derives from raw results, here
// again, to the last digit of the machine's.
func TestParametersOfLinks(t *testing.T) {
	two, four := best(t, "h200/2-gpus.jsonl"), best(t, "h200/4-gpus.c6b6b86.jsonl")
	fitted := map[string]float64{}

	// Half of a round trip of a word that one kernel stores and the other one polls.
	ping := regexp.MustCompile(`ping release=0: ([0-9.]+) ns a round trip`).FindStringSubmatch(text(t, "h200/2-gpus.latency.txt"))
	if ping == nil {
		t.Fatal("2-gpus.latency.txt has no round trip of a word")
	}
	roundTrip, err := strconv.ParseFloat(ping[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	fitted["link-latency"] = roundTrip / 2 / 1e3

	// The times beside it of calls of 1 KiB that have one step.
	var small []float64
	for _, c := range []Collective{AllReduce, AllGather, ReduceScatter, AllToAll} {
		small = append(small, two[call{c.String(), 1 << 10}].US)
	}
	fitted["launch"] = median(small) - fitted["link-latency"]

	// Stores: the all-gather by push, on four GPUs.
	share := func(ranks float64) func(int64) float64 {
		return func(bytes int64) float64 { return float64(bytes) * (ranks - 1) / ranks }
	}
	fitted["link-bandwidth"], _ = between(four, "allgather", 16<<20, 64<<20, share(4))

	// Copies: the all-gather by copy engines, the mean of two and of four GPUs.
	rate2, beside2 := between(two, "allgather", 256<<20, 1<<30, share(2))
	rate4, beside4 := between(four, "allgather", 256<<20, 1<<30, share(4))
	fitted["copy-bandwidth"] = (rate2 + rate4) / 2
	fitted["copy-overhead"] = (beside2+beside4)/2 - fitted["launch"] - 2*fitted["link-latency"]

	// Half of a round trip of a signal through a proxy.
	_, roundTrips, found := strings.Cut(text(t, "h200/2-gpus.other.txt"), "(as released, 8614b08")
	roundTrips, _, ended := strings.Cut(roundTrips, "\n\n")
	var signals []float64
	for _, run := range regexp.MustCompile(`\s([0-9]\.[0-9]{3})\s[ 0-9.]*%`).FindAllStringSubmatch(roundTrips, -1) {
		us, err := strconv.ParseFloat(run[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		signals = append(signals, us)
	}
	if !found || !ended || len(signals) != 6 {
		t.Fatalf("2-gpus.other.txt has the round trips %v of the program that was released: expected 6", signals)
	}
	fitted["trigger-latency"] = median(signals) / 2

	lastDigit := map[string]float64{"link-latency": 0.01, "launch": 0.01, "link-bandwidth": 1, "copy-bandwidth": 1, "copy-overhead": 1, "trigger-latency": 0.1}
	for _, m := range Machines() {
		for _, p := range Parameters() {
			want, ok := fitted[p.Name]
			if unit := lastDigit[p.Name]; ok && math.Abs(p.Get(&m)-want) > unit/2 {
				t.Errorf("%s of %s is %g: expected %.4f as it follows from what was measured", p.Name, m.Name, p.Get(&m), want)
			}
		}
	}
}

// The times of this project that predictions are held against are those in the files.
func TestPublishedIsMeasured(t *testing.T) {
	digits := func(us float64) string { return strconv.FormatFloat(us, 'g', 4, 64) }
	gpus := map[string]map[call]benchLine{}
	for _, file := range []string{"h200/2-gpus.jsonl", "h200/4-gpus.c6b6b86.jsonl"} {
		gpus[file] = best(t, file)
	}
	namespaces := readLines(t, "scaling/namespaces.jsonl")
	seen := 0
	for _, m := range Published() {
		project := strings.HasPrefix(m.Source, ours)
		if project != (m.File != "") || project != (m.By != "") {
			t.Errorf("%+v: a time of this project, and no other, expected to name its file and algorithm", m)
			continue
		}
		if !project {
			continue
		}
		if all, ok := gpus[m.File]; ok {
			l, measured := all[call{m.Collective.String(), m.Bytes}]
			if !measured || l.Ranks != m.Hosts*m.Ranks || l.Algorithm != m.By || digits(l.US) != digits(m.Time) {
				t.Errorf("%s of %d bytes on %d GPUs by %s in %g us: %s has %+v", m.Collective, m.Bytes, m.Ranks, m.By, m.Time, m.File, l)
			}
			continue
		}
		seen++
		if m.File != "scaling/namespaces.jsonl" || !slices.ContainsFunc(namespaces, func(l benchLine) bool {
			return l.Collective == m.Collective.String() && l.Algorithm == m.By && l.Bytes == m.Bytes && l.Ranks == m.Hosts*m.Ranks && math.Round(l.US) == m.Time
		}) {
			t.Errorf("%s of %d bytes over %d hosts by %s in %g us is not in %s", m.Collective, m.Bytes, m.Hosts, m.By, m.Time, m.File)
		}
	}
	if seen != len(namespaces) {
		t.Errorf("%d times of namespaces, and %d in their file: expected all of them", seen, len(namespaces))
	}
}

// The comparison is of a choice of sizes; this is all of them. Small calls on four GPUs
// are of kernels that took longer.
func TestAllCallsOfGPUs(t *testing.T) {
	h200 := Machines()[1]
	for _, x := range []struct {
		file             string
		ranks            int
		from             int64
		slowest, fastest float64 // prediction over measurement
	}{{"h200/2-gpus.jsonl", 2, 0, 0.79, 1.08}, {"h200/4-gpus.c6b6b86.jsonl", 4, 16 << 20, 0.83, 1.04}, {"h200/4-gpus.c6b6b86.jsonl", 4, 0, 0.57, 1.04}} {
		rows := 0
		for c, l := range best(t, x.file) {
			collective, err := ParseCollective(c.collective)
			if err != nil || collective == Broadcast || c.bytes < x.from { // of broadcasts the model has another way
				continue
			}
			m := gpuTime{x.ranks, collective, c.bytes, l.Algorithm, l.US}.measurement(h200)
			p, err := m.Predict()
			if off := p.Time / m.Time; err != nil || off < x.slowest || off > x.fastest {
				t.Errorf("%s of %d bytes by %s on %d GPUs took %.2f, predicted %.2f (%.2f times), %v: expected %g to %g times", c.collective, c.bytes, l.Algorithm, x.ranks, m.Time, p.Time, off, err, x.slowest, x.fastest)
			}
			rows++
		}
		if least := 44; x.from == 0 && rows < least {
			t.Errorf("%s: %d calls, expected %d", x.file, rows, least)
		}
	}
}
