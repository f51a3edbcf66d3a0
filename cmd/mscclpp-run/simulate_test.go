package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/bench/plot"
	"github.com/mscclpp-go/mscclpp/bench/plot/plottest"
	"github.com/mscclpp-go/mscclpp/cmd/mscclpp-run/internal/predict"
	"github.com/mscclpp-go/mscclpp/cmd/mscclpp-run/internal/verb"
	"github.com/mscclpp-go/mscclpp/internal/promise"
	"github.com/mscclpp-go/mscclpp/simulate"
)

// simulated runs the verb in this process and returns its lines of JSON.
func simulated(t *testing.T, args ...string) []predict.Row {
	t.Helper()
	var out, errs bytes.Buffer
	a := &app{stdout: &out, stderr: &errs}
	if code := a.exitCode(a.run(append([]string{"--standalone", "simulate", "--format", "json"}, args...))); code != 0 {
		t.Fatalf("simulate %q: code %d, %s", args, code, errs.String())
	}
	var rows []predict.Row
	from := json.NewDecoder(&out)
	from.DisallowUnknownFields()
	for from.More() {
		var r predict.Row
		if err := from.Decode(&r); err != nil {
			t.Fatal(err)
		}
		rows = append(rows, r)
	}
	return rows
}

// The whole range that it is for, by default, and as fast as a table may take.
func TestSimulateByDefault(t *testing.T) {
	watch := promise.Begin()
	rows := simulated(t)
	late := watch.Kept(20 * time.Second)
	if len(rows) != 10*11 || rows[0].Hosts != 2 || rows[0].Ranks != 16 || rows[len(rows)-1].Hosts != 1024 || rows[len(rows)-1].Ranks != 8192 {
		t.Fatalf("%d rows from %+v to %+v: expected 10 numbers of hosts, 2 to 1024, by 11 sizes", len(rows), rows[0], rows[len(rows)-1])
	}
	for _, r := range rows {
		if !r.Predicted || r.Collective != "allreduce" || r.Machine != "h100" || r.TimeUS < r.BoundUS*(1-1e-9) || r.BoundUS <= 0 {
			t.Errorf("%+v: expected a prediction above its bound", r)
		}
		if want := r.AlgBW * 2 * float64(r.Ranks-1) / float64(r.Ranks); math.Abs(r.BusBW-want) > 1e-9*want {
			t.Errorf("bus bandwidth %g, by the factor of nccl-tests %g", r.BusBW, want)
		}
	}
	if late != nil { // also with the race detector; it takes 0.2 s
		t.Errorf("the default takes too long: %v", late)
	}
}

// Every parameter is a flag, and a machine with other numbers is another machine.
func TestSimulateParameters(t *testing.T) {
	question := []string{"--hosts", "4", "--bytes", "8K", "--algorithm", "small"}
	base := simulated(t, question...)[0].TimeUS
	if got := simulated(t, append(question, "--network-latency", "12")...)[0].TimeUS; math.Abs(got-base-10) > 1e-6 {
		t.Errorf("%g us with a network of 12 instead of 2 us, and %g before: expected 10 more", got, base)
	}
	h200 := simulated(t, append(question, "--machine", "h200")...)[0]
	if h200.Machine != "h200" || h200.TimeUS >= base {
		t.Errorf("%+v: expected a little less than %g, its memory is faster", h200, base)
	}
	c := predict.Command(&verb.Env{})
	for _, p := range simulate.Parameters() {
		if f := c.Flags().Lookup(p.Name); f == nil || !strings.Contains(f.Usage, p.Help) {
			t.Errorf("--%s is no flag, or one without a word about it", p.Name)
		}
	}
}

func machineFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "cluster.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestSimulateMachineFile(t *testing.T) {
	question := []string{"--hosts", "2", "--bytes", "1M", "--machine"}
	rows := simulated(t, append(question, machineFile(t, "base: h200\nnic-bandwidth: 24.8\nnics: 4\n"))...)
	flags := simulated(t, append(question, "h200", "--nic-bandwidth", "24.8", "--nics", "4")...)
	if rows[0].Machine != "cluster" || rows[0].TimeUS != flags[0].TimeUS {
		t.Errorf("%+v, by flags %+v: expected the same from a machine with the name of its file", rows[0], flags[0])
	}
	if over := simulated(t, append(question, machineFile(t, "name: old\nbase: h200\nnics: 1\n"), "--nics", "8")...); over[0].Machine != "old" {
		t.Errorf("%+v: expected the name that the file gives", over[0])
	} else if plain := simulated(t, append(question, "h200")...); over[0].TimeUS != plain[0].TimeUS {
		t.Errorf("%g, expected %g: a flag counts more than the file", over[0].TimeUS, plain[0].TimeUS)
	}
	var whole strings.Builder
	h100 := simulate.Machines()[0]
	for _, p := range simulate.Parameters() {
		value, err := json.Marshal(p.Get(&h100))
		if err != nil {
			t.Fatal(err)
		}
		whole.WriteString(p.Name + ": " + string(value) + "\n")
	}
	all := simulated(t, append(question, machineFile(t, whole.String()))...)
	if plain := simulated(t, append(question, "h100")...); all[0].TimeUS != plain[0].TimeUS {
		t.Errorf("%g, expected %g from a file with all parameters", all[0].TimeUS, plain[0].TimeUS)
	}
}

func TestSimulateUnevenHosts(t *testing.T) {
	rows := simulated(t, "allgather", "reduce-scatter", "--hosts", "2,6", "--gpus", "8,4,8", "--bytes", "64M")
	var ranks []int
	for _, r := range rows {
		ranks = append(ranks, r.Ranks)
	}
	if len(rows) != 4 || ranks[0] != 12 || ranks[1] != 40 || rows[2].Collective != "reducescatter" {
		t.Errorf("%+v: expected 12 and 40 ranks, twice", rows)
	}
}

func TestSimulateAlgorithms(t *testing.T) {
	listed := simulated(t, "--hosts", "2", "--bytes", "1M,8K,64K:256K")
	var sizes []int64
	for _, r := range listed {
		sizes = append(sizes, r.Bytes)
	}
	if want := []int64{1 << 20, 8 << 10, 64 << 10, 256 << 10}; !slices.Equal(sizes, want) {
		t.Errorf("a list of sizes: %d, expected %d", sizes, want)
	}
	all := simulated(t, "--hosts", "8", "--bytes", "64K", "--algorithm", "all")
	if len(all) != 7 {
		t.Fatalf("%d algorithms, expected 7", len(all))
	}
	for i, r := range all {
		if i > 0 && r.TimeUS < all[i-1].TimeUS {
			t.Errorf("%s stands behind a slower one", r.Algorithm)
		}
	}
	if best := simulated(t, "--hosts", "8", "--bytes", "64K"); len(best) != 1 || best[0] != all[0] {
		t.Errorf("the best is %+v, the first of all is %+v", best, all[0])
	}
	two := simulated(t, "--hosts", "8", "--bytes", "64M", "--algorithm", "flat-ring,large-direct", "--pieces", "3")
	if len(two) != 2 || two[0].Algorithm != "flat-ring" || two[1].Algorithm != "large-direct" || two[1].Pieces != 3 {
		t.Errorf("%+v: expected both, in this order, and 3 pieces where there are any", two)
	}
}

// The program's own choice can be asked for, and a choice that it does not have is marked.
func TestSimulateProgram(t *testing.T) {
	for algorithm, want := range map[string]string{
		"program": "small-whole large-direct large-direct", "program-direct": "small small large-direct", "best": "small-whole small small",
	} {
		var got []string
		for _, r := range simulated(t, "--hosts", "2", "--bytes", "8K:256K", "-f", "5", "--algorithm", algorithm) {
			got = append(got, r.Algorithm)
			if in := r.Algorithm != "small" || r.Bytes < 128<<10; r.InProgram != in {
				t.Errorf("%+v: expected that it is in the program: %v", r, in)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %q, expected %s", algorithm, got, want)
		}
	}
	const note = "# * not in this program at that size; --algorithm program predicts what is\n"
	if code, out, errs := runs(command(t, "simulate", "--hosts", "2", "--bytes", "256K")); code != 0 || !strings.HasSuffix(out, note) || !strings.Contains(out, " small* ") {
		t.Errorf("code %d, %s\n%s: expected small with a mark", code, errs, out)
	}
	if code, out, errs := runs(command(t, "simulate", "--hosts", "2", "--bytes", "256K", "--algorithm", "program")); code != 0 || strings.Contains(out, "*") {
		t.Errorf("code %d, %s\n%s: expected no mark", code, errs, out)
	}
}

// Measured times stand beside predictions, in both formats.
func TestSimulatePublished(t *testing.T) {
	rows := simulated(t, "--published")
	if len(rows) != len(simulate.Published()) {
		t.Fatalf("%d rows of %d measurements", len(rows), len(simulate.Published()))
	}
	for i, m := range simulate.Published() {
		if r := rows[i]; r.MeasuredUS == nil || *r.MeasuredUS != m.Time || r.Bytes != m.Bytes || r.Source != m.Source {
			t.Errorf("%+v, expected the measurement %+v", r, m)
		}
	}
	code, out, errs := runs(command(t, "simulate", "--published"))
	if code != 0 || strings.Count(out, "\n") != 3+len(rows) || !strings.Contains(out, "15.10") || !strings.Contains(out, "15989") {
		t.Errorf("code %d, %s\n%s", code, errs, out)
	}
}

func TestSimulateDraws(t *testing.T) {
	drawing := filepath.Join(t.TempDir(), "x.svg")
	code, out, errs := runs(command(t, "simulate", "allreduce", "alltoall", "--plot", drawing))
	text := read(t, drawing)
	if code != 0 || xml.Unmarshal([]byte(text), new(struct{})) != nil || strings.Count(out, "predicted by simulation") != 2 {
		t.Fatalf("code %d, %s\n%.300s", code, errs, out)
	}
	for _, want := range []string{"allreduce on h100, predicted: time", "alltoall on h100, predicted: bus bandwidth", ">2 hosts<", ">1024 hosts<"} {
		if !strings.Contains(text, want) {
			t.Errorf("the drawing lacks %q", want)
		}
	}
	charts := plottest.Read(t, text)
	if len(charts) != 4 {
		t.Errorf("%d charts, expected 4", len(charts))
	}
	for _, c := range charts {
		for _, s := range c.Series {
			if len(c.Series) != plot.MaxCurves || len(s.X) != 11 {
				t.Errorf("%s: %d curves, %d points of %s: expected %d curves with a point for each size", c.Title, len(c.Series), len(s.X), s.Name, plot.MaxCurves)
			}
		}
	}
	code, _, errs = runs(command(t, "simulate", "--hosts", "2", "--algorithm", "all", "--plot", drawing))
	if text = read(t, drawing); code != 0 || !strings.Contains(text, ">2 hosts, large-ring<") {
		t.Errorf("code %d, %s: a curve for each algorithm is missing", code, errs)
	}
}

func TestSimulateRefuses(t *testing.T) {
	for want, args := range map[string][]string{
		`--hosts "1024:2": expected MIN:MAX`:    {"--hosts", "1024:2"},
		`--hosts "two": expected`:               {"--hosts", "two"},
		`--hosts "0": expected`:                 {"--hosts", "0"},
		`--gpus "8,x": expected a number`:       {"--gpus", "8,x"},
		"0 ranks on a host: expected 1 to 1024": {"--gpus", "0"},
		"1 ranks: expected 2":                   {"--hosts", "1", "--gpus", "1"},
		"ranks: expected 2 to 1048576":          {"--hosts", "1000000"},
		`"1X"`:                                  {"--bytes", "1X"},
		"0 bytes: expected 1":                   {"--bytes", "0"},
		"factor 1: expected 2 or more":          {"--factor", "1"},
		`--machine "tpu": expected one of h100, h200, or a file that ends in .yaml: invalid`: {"--machine", "tpu"},
		`--bytes "1K,many": expected MIN:MAX, or sizes with commas`:                          {"--bytes", "1K,many"},
		`--gpus "99999999999999999999": a number is too large`:                               {"--gpus", "99999999999999999999"},
		"no such file": {"--machine", "nowhere.yaml"},
		`--algorithm "tree": expected best, all, program, program-direct, or some of flat`: {"--algorithm", "tree"},
		"over 1 hosts: expected 2 or more":                                                 {"--hosts", "1", "--algorithm", "program"},
		"alltoall by large-ring: no such":                                                  {"alltoall", "--algorithm", "large-ring"},
		`collective "gather": expected one of`:                                             {"gather"},
		"-1 pieces: expected 1":                                                            {"--pieces", "-1"},
		`--format "xml": expected table or json`:                                           {"--format", "xml"},
		"--nic-bandwidth 0: expected 1e-06 or more, and at most":                           {"--nic-bandwidth", "0"},
		"--nic-bandwidth 1e-300: expected 1e-06 or more":                                   {"--nic-bandwidth", "1e-300"},
		"--copy-bandwidth 1e-300: expected 0, or 1e-06 or more":                            {"--copy-bandwidth", "1e-300"},
		"--nics 1.5: expected a whole number":                                              {"--nics", "1.5"},
		"unknown flag: --nic-speed":                                                        {"--nic-speed", "1"},
		"--hosts beside --published":                                                       {"--published", "--hosts", "2"},
		"allgather beside --published":                                                     {"--published", "allgather"},
		"it reads no configuration: expected no --set":                                     {"--set", "foo.bar=1"},
		"it reads no configuration: expected no --config":                                  {"--config", "x.yaml"},
		"it starts no ranks":                                                               {"-n", "4"},
		"hops to simulate, expected at most":                                               {"--hosts", "1024", "--gpus", "1024", "--bytes", "1K", "--algorithm", "flat-ring"},
	} {
		code, _, errs := runs(command(t, append([]string{"simulate"}, args...)...))
		if code != 2 || !strings.Contains(errs, want) {
			t.Errorf("simulate %q: code %d, %s: want %q", args, code, errs, want)
		}
	}
	// Before the verb, --hosts is the launcher's list, and is not silently ignored.
	if code, _, errs := runs(command(t, "--hosts", "2:4", "simulate")); code != 2 || !strings.Contains(errs, "expected --hosts and --gpus behind the verb") {
		t.Errorf("code %d, %s", code, errs)
	}
	if code, _, errs := runs(command(t, "simulate", "--hosts", "2", "--plot", filepath.Join(t.TempDir(), "no", "x.svg"))); code != 1 || !strings.Contains(errs, "--plot") {
		t.Errorf("code %d, %s", code, errs)
	}
}

func TestSimulateRefusesMachines(t *testing.T) {
	for want, text := range map[string]string{
		`line 2: unknown key "nic_bandwidth": expected name, base`: "base: h100\nnic_bandwidth: 50\n",
		`line 2: name: expected a word`:                            "base: h100\nname: [a]\n",
		`line 1: base: expected a word`:                            "base: {h100: 1}\n",
		`expected one document`:                                    "base: h100\n---\nnics: 2\n",
		"these are missing: nic-bandwidth, network-latency":        "nics: 8\n",
		`line 2: nics: expected a number, found "eight"`:           "base: h100\nnics: eight\n",
		"line 2: link-latency -1: expected 0 or more":              "base: h100\nlink-latency: -1\n",
		`base: machine "b300": expected one of h100, h200`:         "base: b300\n",
		"expected YAML":           "nics: [\n",
		"already defined at line": "base: h100\nnics: 8\nnics: 4\n",
	} {
		file := machineFile(t, text)
		code, _, errs := runs(command(t, "simulate", "--machine", file))
		if code != 2 || !strings.Contains(errs, want) || !strings.Contains(errs, file) {
			t.Errorf("%q: code %d, %s: want %q and the name of the file", text, code, errs, want)
		}
	}
	if code, _, errs := runs(command(t, "simulate", "--machine", filepath.Dir(machineFile(t, ""))+"/../x.yaml")); code != 2 || errs == "" {
		t.Errorf("code %d, %s", code, errs)
	}
}
