package nccl

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework/device/cuda"
)

// shared builds a library of testdata.
func shared(t *testing.T, source, name string, flags ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	run(t, exec.Command("cc", append([]string{"-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-o", path, "testdata/" + source}, flags...)...))
	return path
}

// event is what the plugin of testdata has heard of one.
type event struct {
	number, kind, parent, context string
	fields                        map[string]string
	states                        []string
	children                      []*event
	stopped                       bool
}

var eventKinds = map[string]string{"1": "Group", "2": "Coll", "4": "P2p", "64": "KernelCh", "256": "GroupApi", "512": "CollApi", "1024": "P2pApi", "2048": "KernelLaunch"}

// heard reads what the plugin of a rank has written: its communicators by name, and its events in their order. Each begins
// once and ends once, within its communicator.
func heard(t *testing.T, path string) (comms map[string]map[string]string, events []*event) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	comms, all, alive := map[string]map[string]string{}, map[string]*event{}, map[string]bool{}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		fields := map[string]string{}
		for _, w := range words[2:] {
			if k, v, ok := strings.Cut(w, "="); ok {
				fields[k] = v
			}
		}
		number := words[1]
		switch words[0] {
		case "init":
			alive[number] = true
			fields["number"] = number
			comms[fields["name"]] = fields
		case "start":
			e := &event{number: number, kind: eventKinds[fields["kind"]], parent: fields["parent"], context: fields["context"], fields: fields}
			if e.kind == "" || !alive[e.context] {
				t.Errorf("an event of an unknown kind or communicator: %s", line)
			}
			if p := all[e.parent]; e.parent != "0" && (p == nil || p.context != e.context) {
				t.Errorf("an event whose parent is none of its communicator: %s", line)
			} else if p != nil {
				p.children = append(p.children, e)
			}
			all[number] = e
			events = append(events, e)
		case "state", "stop":
			e := all[number]
			if e == nil || e.stopped || !alive[e.context] {
				t.Fatalf("of no event that goes on: %s", line)
			}
			if words[0] == "state" {
				e.states = append(e.states, words[2])
			} else {
				e.stopped = true
			}
		case "finalize":
			for _, e := range events {
				if e.context == number && !e.stopped {
					t.Errorf("a communicator ends before its event %s: %v", e.kind, e.fields)
				}
			}
			delete(alive, number)
		}
	}
	if len(alive) > 0 {
		t.Errorf("communicators that have not ended: %v", alive)
	}
	return comms, events
}

// profiled runs the program with a plugin, and returns what its ranks have printed, and the files of the plugin.
func profiled(t *testing.T, own []string, variables ...string) (said, files []string) {
	t.Helper()
	return profiledProgram(t, "profiled.c", 2, own, variables...)
}

// profiledProgram is profiled for another program, of n ranks.
func profiledProgram(t *testing.T, source string, n int, own []string, variables ...string) (said, files []string) {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, "rank.sh") // a file for each rank
	if err := os.WriteFile(program, fmt.Appendf(nil, "#!/bin/sh\nTEST_EVENTS=%[1]s/events.$TEST_RANK TEST_RANGES=%[1]s/ranges.$TEST_RANK exec %[2]s\n", dir, compile(t, source)), 0o700); err != nil {
		t.Fatal(err)
	}
	said = ranksOf(t, program, n, append(own, variables...))
	for r := range n {
		files = append(files, filepath.Join(dir, fmt.Sprint("events.", r)))
	}
	return said, files
}

// A plugin hears nothing of a forked child, in which it would end by itself.
func TestProfilerAndFork(t *testing.T) {
	t.Parallel()
	events := filepath.Join(t.TempDir(), "events")
	ranksWith(t, "fork.c", 2, environ(t, "NCCL_PROFILER_PLUGIN="+shared(t, "profiler.c", "libprofiler.so"), "TEST_EVENTS="+events), 1)
	if text, err := os.ReadFile(events); err != nil || !strings.Contains(string(text), "func=AllReduce") {
		t.Errorf("the plugin heard %q: %v: expected calls", text, err)
	}
}

// A program's calls, as a plugin of version 5 hears of them.
func TestProfiler(t *testing.T) {
	t.Parallel()
	for name, own := range map[string]func() []string{"host": func() []string { return environ(t) }, "gpus": func() []string { return onGPUs(t, "TEST_GPUS=1") }} {
		t.Run(name, func(t *testing.T) {
			_, files := profiled(t, own(), "NCCL_PROFILER_PLUGIN="+shared(t, "profiler.c", "libprofiler.so"))
			ids := map[string]bool{}
			for rank, file := range files {
				comms, events := heard(t, file)
				world := comms["world"]
				if len(comms) != 2 || world["rank"] != fmt.Sprint(rank) || world["nranks"] != "2" || world["nodes"] != "1" || world["id"] == "0" {
					t.Fatalf("communicators %v", comms)
				}
				ids[world["id"]] = true
				checkEvents(t, name == "gpus", world["number"], events)
			}
			if len(ids) != 1 {
				t.Errorf("ids of one communicator: %v", slices.Collect(maps.Keys(ids)))
			}
		})
	}
}

// line is an event in short: those of each kind have a few fields that say enough.
func line(e *event) string {
	f := e.fields
	switch e.kind {
	case "Coll":
		return fmt.Sprintf("Coll %s %s %s %s seq=%s", f["func"], f["count"], f["type"], f["root"], f["seq"])
	case "CollApi":
		return fmt.Sprintf("CollApi %s %s %s %s captured=%s", f["func"], f["count"], f["type"], f["root"], f["captured"])
	case "P2p":
		return fmt.Sprintf("P2p %s %s %s", f["func"], f["count"], f["type"])
	case "P2pApi":
		return fmt.Sprintf("P2pApi %s %s %s captured=%s", f["func"], f["count"], f["type"], f["captured"])
	case "GroupApi":
		return fmt.Sprintf("GroupApi depth=%s captured=%s", f["depth"], f["captured"])
	}
	return e.kind
}

// tree writes events below their parents.
func tree(e *event, indent string, out *strings.Builder) {
	fmt.Fprintf(out, "%s%s\n", indent, line(e))
	for _, c := range e.children {
		tree(c, indent+"  ", out)
	}
}

const (
	aloneTree = `GroupApi depth=1 captured=0
  CollApi AllReduce 64 ncclFloat32 0 captured=0
    Coll AllReduce 64 ncclFloat32 0 seq=%d
      KernelCh
  KernelLaunch
  Group
`
	groupTree = `GroupApi depth=1 captured=0
  CollApi Broadcast 64 ncclFloat32 1 captured=0
    Coll Broadcast 64 ncclFloat32 1 seq=0
      KernelCh
  P2pApi Send 64 ncclFloat32 captured=0
    P2p Send 64 ncclFloat32
      KernelCh
  P2pApi Recv 64 ncclFloat32 captured=0
    P2p Recv 64 ncclFloat32
      KernelCh
  CollApi AllReduce 64 ncclFloat32 0 captured=0
    Coll AllReduce 64 ncclFloat32 0 seq=1
      KernelCh
  KernelLaunch
  Group
`
	failedTree = `GroupApi depth=1 captured=0
  CollApi AllReduce 64 ncclFloat32 0 captured=0
`
	capturedTree = `GroupApi depth=1 captured=1
  CollApi AllReduce 64 ncclFloat32 0 captured=1
    Coll AllReduce 64 ncclFloat32 0 seq=2
  KernelLaunch
  Group
`
)

// checkEvents compares the events of the program with what they are to be.
func checkEvents(t *testing.T, gpus bool, world string, events []*event) {
	t.Helper()
	var got [2]strings.Builder // of the world, and of its part
	for _, e := range events {
		if e.parent == "0" {
			of := 0
			if e.context != world {
				of = 1
			}
			tree(e, "", &got[of])
		}
		want := map[string]string{"GroupApi": "[23 24]", "KernelCh": "[22]"}[e.kind]
		if want == "" {
			want = "[]"
		}
		if failed := strings.HasPrefix(line(e), "GroupApi") && len(e.children) == 1; fmt.Sprint(e.states) != want && (!failed || fmt.Sprint(e.states) != "[23]") {
			t.Errorf("%s has states %v, expected %s", line(e), e.states, want)
		}
		switch e.kind {
		case "Coll", "P2p":
			if e.fields["channels"] != "1" || e.fields["group"] == "0" || e.fields["send"] == "0" || e.fields["buff"] == "0" {
				t.Errorf("%s: %v", e.kind, e.fields)
			}
		case "KernelLaunch", "CollApi":
			if (e.fields["stream"] == "1") != gpus {
				t.Errorf("%s: %v", e.kind, e.fields)
			}
		case "KernelCh":
			if e.fields["time"] == "0" {
				t.Errorf("%s: %v", e.kind, e.fields)
			}
		}
	}
	captured, last := "", 2
	if gpus {
		captured, last = capturedTree, 3
	}
	if want := fmt.Sprintf(aloneTree, 0) + groupTree + failedTree + captured + fmt.Sprintf(aloneTree, last); got[0].String() != want {
		t.Errorf("events\n%s\nexpected\n%s", got[0].String(), want)
	}
	if want := fmt.Sprintf(aloneTree, 0); got[1].String() != want {
		t.Errorf("events of the other communicator\n%s\nexpected\n%s", got[1].String(), want)
	}
}

// A plugin gets the kinds of events that it asks for, and a log.
func TestProfilerMaskAndLog(t *testing.T) {
	t.Parallel()
	said, files := profiled(t, environ(t), "NCCL_PROFILER_PLUGIN="+shared(t, "profiler.c", "libprofiler.so"), "TEST_MASK=512", "NCCL_DEBUG=INFO", "NCCL_DEBUG_SUBSYS=PROFILE")
	_, events := heard(t, files[0])
	for _, e := range events {
		if e.kind != "CollApi" || e.parent != "0" {
			t.Errorf("%s, parent %s", e.kind, e.parent)
		}
	}
	if len(events) != 6 {
		t.Errorf("%d events", len(events))
	}
	expectText(t, said[0], "NCCL INFO the plugin of rank 0 begins", "profiler.c:78 NCCL WARN the plugin warns", "PROFILER/Plugin: loaded recorder (v5) of ")
}

// Versions 4 and 6 have their own ways; others, files that are none, and an init that fails are a line of the log each.
func TestProfilerPlugins(t *testing.T) {
	t.Parallel()
	plugin := func(flags ...string) string { return shared(t, "profiler.c", "libprofiler.so", flags...) }
	quiet := environ(t, "NCCL_DEBUG=WARN", "TEST_MASK=4095")

	_, files := profiled(t, quiet, "NCCL_PROFILER_PLUGIN="+plugin("-DVERSION=4"))
	_, events := heard(t, files[0])
	kinds := map[string]int{}
	groups := map[string]bool{}
	for _, e := range events {
		kinds[e.kind]++
		if e.kind == "Group" {
			groups[e.number] = true
		}
		if (e.kind == "Coll" || e.kind == "P2p") && !groups[e.parent] {
			t.Errorf("version 4: %s has no group as its parent: %v", e.kind, e.fields)
		}
	}
	if want := map[string]int{"Group": 4, "Coll": 5, "P2p": 2, "KernelCh": 7}; !maps.Equal(kinds, want) {
		t.Errorf("version 4: %v, expected %v", kinds, want)
	}

	_, files = profiled(t, quiet, "NCCL_PROFILER_PLUGIN="+plugin("-DVERSION=6"))
	comms, events := heard(t, files[0])
	checkEvents(t, false, comms["world"]["number"], events)

	for name, c := range map[string]struct{ plugin, want string }{
		"version 99":         {plugin("-DVERSION=99"), "libprofiler.so has no ncclProfiler_v4, _v5 or _v6: no profiler is used"},
		"missing":            {"/nonexistent/libprofiler.so", "NCCL_PROFILER_PLUGIN=/nonexistent/libprofiler.so: "},
		"missing, by a name": {"nonexistent", "NCCL_PROFILER_PLUGIN=nonexistent: libnccl-profiler-nonexistent.so"},
		"no library":         {os.Args[0] + ".none", ".none: "},
		"init fails":         {plugin("-DFAILS"), "recorder: init fails for communicator"},
		"takes no part":      {plugin("-DIDLE"), ""},
		"none":               {"none", ""},
	} {
		said, _ := profiled(t, quiet, "NCCL_PROFILER_PLUGIN="+c.plugin)
		lines := 0
		for l := range strings.Lines(said[1]) {
			if strings.Contains(l, "PROFILER") {
				lines++
			}
		}
		want := 1
		switch name {
		case "none", "takes no part":
			want = 0
		case "init fails": // for each of two communicators
			want = 2
		}
		if lines != want || !strings.Contains(said[1], c.want) {
			t.Errorf("%s: %d lines, expected %d and %q, in\n%s", name, lines, want, c.want, said[1])
		}
	}

	// A name is the last part of a file's.
	dir := filepath.Dir(plugin())
	if err := os.Rename(filepath.Join(dir, "libprofiler.so"), filepath.Join(dir, "libnccl-profiler-mine.so")); err != nil {
		t.Fatal(err)
	}
	_, files = profiled(t, quiet, "NCCL_PROFILER_PLUGIN=mine", "LD_LIBRARY_PATH="+dir)
	if _, events := heard(t, files[1]); len(events) == 0 {
		t.Error("a plugin that is found by its name hears of nothing")
	}
}

// A driver that does not return from a question about an event holds up no call of the program, and no end of a communicator.
func TestProfilerStuckDriver(t *testing.T) {
	t.Parallel()
	own := onGPUs(t)
	driver := strings.TrimPrefix(own[slices.IndexFunc(own, func(v string) bool { return strings.HasPrefix(v, cuda.EnvLibrary+"=") })], cuda.EnvLibrary+"=")
	stuck := shared(t, "stuck.c", "libstuck.so", "-Wl,--no-as-needed", driver, "-Wl,-rpath,"+filepath.Dir(driver), "-lpthread", "-ldl")
	_, files := profiledProgram(t, "profiled_stuck.c", 2, append(own, cuda.EnvLibrary+"="+stuck), "NCCL_PROFILER_PLUGIN="+shared(t, "profiler.c", "libprofiler.so"))
	for _, file := range files {
		if comms, events := heard(t, file); len(comms) != 1 || len(events) == 0 { // all have no name
			t.Errorf("%d events of communicators %v", len(events), comms)
		}
	}
}

// Communicators that come of one by shrinking have ids of their own, the same on all their ranks, though these have not
// shrunk as often. Hosts are those of the set-up.
func TestProfilerIDs(t *testing.T) {
	t.Parallel()
	own := environ(t, "MSCCLPP_TRANSPORTS=shm,tcp", "NCCL_PROFILER_PLUGIN="+shared(t, "profiler.c", "libprofiler.so"))
	_, files := profiledProgram(t, "profiled_shrunk.c", 3, own)
	ids, ranks := map[string]string{}, map[string]int{}
	for _, file := range files {
		comms, _ := heard(t, file)
		for name, c := range comms {
			if id, there := ids[name]; there && id != c["id"] {
				t.Errorf("%s has ids %s and %s", name, id, c["id"])
			}
			if name == "world" && c["nodes"] != "2" || name == "second" && c["nodes"] != "1" { // rank 2 is on a host of its own
				t.Errorf("%s is on %s hosts", name, c["nodes"])
			}
			ids[name] = c["id"]
			ranks[name]++
		}
	}
	different := map[string]bool{}
	for _, id := range ids {
		different[id] = true
	}
	if want := map[string]int{"world": 3, "first": 2, "second": 2, "third": 2, "part": 2}; len(different) != len(want) || !maps.Equal(ranks, want) {
		t.Errorf("communicators %v with ids %v", ranks, ids)
	}
}

// A tool of NVTX sees each function of the program as a range of the domain that NCCL's have, one inside the other.
func TestNVTX(t *testing.T) {
	t.Parallel()
	tool := shared(t, "nvtx.c", "libtool.so")
	_, files := profiled(t, environ(t), "NVTX_INJECTION64_PATH="+tool)
	path := filepath.Join(filepath.Dir(files[0]), "ranges.0")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var pushed []string
	depth := 0
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		switch words[0] {
		case "push":
			if words[1] != "1" || words[2] != fmt.Sprint(depth) || !strings.Contains(line, "version=3 size=48 type=1 ") {
				t.Errorf("%q at depth %d", line, depth)
			}
			depth++
			pushed = append(pushed, strings.TrimPrefix(words[3], "nccl")+strings.TrimPrefix(words[7], "payload="))
		case "pop":
			depth--
			if words[1] != "1" || words[2] != fmt.Sprint(depth) {
				t.Errorf("%q at depth %d", line, depth)
			}
		}
	}
	want := "CommInitRankConfig0:0 CommSplit0:0 AllReduce1:256 AllReduce0:0 GroupStart0:0 Broadcast1:256 GroupStart0:0 Send1:256 Recv1:256 GroupEnd0:0 AllReduce1:256 AllReduce1:256 GroupEnd0:0 " +
		"GroupStart0:0 AllReduce1:256 Broadcast1:256 GroupEnd0:0 CommDestroy0:0 AllReduce1:256 CommDestroy0:0"
	if got := strings.Join(pushed, " "); got != want || depth != 0 {
		t.Errorf("ranges, %d open\n%s\nexpected\n%s", depth, got, want)
	}
	expectText(t, string(text), "version 3 unknown table 0\n", "module 1 1 16\nmodule 2 1 9\nmodule 3 1 15\nmodule 4 1 7\nmodule 5 1 16\nmodule 6 1 7\nmodule 7 0\n", "initialize 1\ndomain NCCL\n")

	// Tools that do not start, or are missing, are no failure.
	profiled(t, environ(t), "NVTX_INJECTION64_PATH="+tool, "TEST_REFUSES=1")
	profiled(t, environ(t), "NVTX_INJECTION64_PATH=/nonexistent/libtool.so")

	// A tool and a plugin at the same time.
	_, files = profiled(t, environ(t), "NVTX_INJECTION64_PATH="+tool, "NCCL_PROFILER_PLUGIN="+shared(t, "profiler.c", "libprofiler.so"))
	comms, events := heard(t, files[1])
	checkEvents(t, false, comms["world"]["number"], events)
	if text, err := os.ReadFile(filepath.Join(filepath.Dir(files[1]), "ranges.1")); err != nil || !strings.Contains(string(text), "push 1 0 ncclAllReduce ") {
		t.Errorf("%v, ranges\n%s", err, text)
	}
}
