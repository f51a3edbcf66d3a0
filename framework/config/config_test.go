package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
)

// write puts a configuration file into a fresh folder and returns its path.
func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func load(t *testing.T, s Sources) *Effective {
	t.Helper()
	e, err := Load(s)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestDefaultsLoadAndPass(t *testing.T) {
	e := load(t, Sources{})
	if got := e.Transports; len(got) != 0 {
		t.Errorf("transports = %v, expected none: the device decides", got)
	}
	for device, want := range map[string]string{"host": "shm", "cuda": "cudaipc"} {
		if got := e.TransportsOn(device); len(got) != 1 || got[0] != want {
			t.Errorf("transports on %s = %v, expected [%s]", device, got, want)
		}
	}
	e.Transports = []string{"tcp"}
	if got := e.TransportsOn("cuda"); len(got) != 1 || got[0] != "tcp" {
		t.Errorf("transports = %v, expected the list as it is", got)
	}
	if e.Comm.Scratch != 0 || e.Collectives.CopyScratch != 1<<30 || !e.Collectives.CopyEngines || e.Bootstrap.Timeout != Duration(30*time.Second) {
		t.Errorf("scratch %v, timeout %v", e.Comm.Scratch, e.Bootstrap.Timeout)
	}
	if o := e.Origin("comm.scratch"); o.String() != "default" {
		t.Errorf("origin = %v, expected default", o)
	}
}

// Defaults of a program are in the place of this package's: each layer of the user counts before them, and
// mistakes in them are found.
func TestDefaultsOfAProgram(t *testing.T) {
	s := Sources{
		Defaults: []Setting{{"bootstrap.timeout", "30m", "defaults[0]"}, {"check.overlap", "false", "defaults[1]"}, {"collectives.preload", "true", "defaults[2]"}},
		Job:      write(t, "j.yaml", "bootstrap: {timeout: 2m}\n"),
		Environ:  []string{"MSCCLPP_COLLECTIVES__PRELOAD=false"},
	}
	e := load(t, s)
	if e.Bootstrap.Timeout != Duration(2*time.Minute) || e.Collectives.Preload || e.Check.Overlap {
		t.Errorf("timeout %v, preload %v, overlap %v: expected 2m, false, false", e.Bootstrap.Timeout, e.Collectives.Preload, e.Check.Overlap)
	}
	if o := e.Origin("check.overlap"); o.Layer != "program" || o.String() != "defaults[1]" {
		t.Errorf("origin %v %v", o.Layer, o)
	}
	s.Flags = []Setting{{"check.overlap", "true", "--set"}}
	if e := load(t, s); !e.Check.Overlap {
		t.Error("a flag does not count")
	}
	s.Defaults[0].Key = "bootstrap.timeuot"
	if _, err := Load(s); err == nil || !strings.Contains(err.Error(), "defaults[0]") {
		t.Errorf("%v: expected an error that names the default", err)
	}
}

// Each layer sets the key of the one below and one of its own.
func TestLayers(t *testing.T) {
	system := write(t, "config.yaml", "comm: {scratch: 1MiB, max_blocks: 4}\ntransports: [tcp, shm]\n")
	user := write(t, "config.toml", "[comm]\nscratch = '2MiB'\ndeadline = '1s'\n")
	job := write(t, "job.yaml", "comm:\n  scratch: 4194304\nlaunch:\n  bind: core\n")
	s := Sources{
		SystemBase: strings.TrimSuffix(system, ".yaml"),
		UserBase:   strings.TrimSuffix(user, ".toml"),
		Job:        job,
		Environ:    []string{"MSCCLPP_COMM__SCRATCH=8MiB", "MSCCLPP_CHECK__SIGNATURES=always"},
	}
	e := load(t, s)
	if e.Comm.Scratch != 8<<20 {
		t.Errorf("scratch = %v, expected 8MiB from the environment", e.Comm.Scratch)
	}
	s.Flags = []Setting{{"comm.scratch", "16MiB", "--set"}, {"log.level", "debug", "--log-level"}}
	e = load(t, s)
	want := map[string]struct{ value, origin string }{
		"comm.scratch":     {"16MiB", "--set"},
		"comm.max_blocks":  {"4", system + ":1"},
		"comm.deadline":    {"1s", user + ":3"},
		"transports":       {"[tcp, shm]", system + ":2"},
		"launch.bind":      {"core", job + ":4"},
		"check.signatures": {"always", "MSCCLPP_CHECK__SIGNATURES"},
		"log.level":        {"debug", "--log-level"},
		"launch.grace":     {"5s", "default"},
	}
	for _, v := range e.Values() {
		if w, ok := want[v.Key]; ok {
			if v.Value != w.value || v.Origin.String() != w.origin {
				t.Errorf("%s = %s from %s, expected %s from %s", v.Key, v.Value, v.Origin, w.value, w.origin)
			}
			delete(want, v.Key)
		}
	}
	if len(want) > 0 {
		t.Errorf("keys not listed: %v", want)
	}
}

func TestListsAreReplacedAndSectionsMerged(t *testing.T) {
	system := write(t, "config.yaml", "transports: [shm, tcp, ib-host]\ntransport:\n  shm: {slots: 8, deep: {a: 1, b: 2}}\n")
	job := write(t, "job.toml", "transports = ['shm']\n[transport.shm]\nbusy = true\ndeep.b = 3\n")
	e := load(t, Sources{SystemBase: strings.TrimSuffix(system, ".yaml"), Job: job})
	if len(e.Transports) != 1 {
		t.Errorf("transports = %v, expected the job's list alone", e.Transports)
	}
	shm := e.Transport["shm"]
	deep, _ := shm["deep"].(map[string]any)
	if shm["slots"] != 8 || shm["busy"] != true || deep["a"] != 1 || deep["b"] != int64(3) {
		t.Errorf("options of shm = %v", shm)
	}
	if o := e.Origin("transport.shm.deep.b"); o.Layer != "job" || o.Line != 4 {
		t.Errorf("origin of deep.b = %+v, expected line 4 of the job file", o)
	}
}

// Each mistake must name the file, the line, the key and what was expected.
func TestMistakesInFiles(t *testing.T) {
	for name, c := range map[string]struct{ file, text, want string }{
		"misspelled":      {"j.yaml", "comm:\n  scrach: 1\n", `j.yaml:2: unknown key "comm.scrach" (did you mean "comm.scratch"?)`},
		"misspelled toml": {"j.toml", "# c\n[comm]\nscratch = 1048576\nmax_block = 3\n", `j.toml:4: unknown key "comm.max_block" (did you mean "comm.max_blocks"?)`},
		"swapped":         {"j.yaml", "lgo: {level: info}\n", `j.yaml:1: unknown key "lgo" (did you mean "log"?)`},
		"wrong section":   {"j.yaml", "\nscratch: 1\n", `j.yaml:2: unknown key "scratch" (did you mean "comm.scratch"?)`},
		"hyphen":          {"j.yaml", "comm: {max-blocks: 1}", `(did you mean "comm.max_blocks"?)`},
		"no idea":         {"j.yaml", "zzzzzz: 1", `unknown key "zzzzzz": invalid`},
		"type":            {"j.yaml", "comm:\n  max_blocks: many\n", `j.yaml:2: comm.max_blocks: expected a whole number, found the text "many"`},
		"negative":        {"j.yaml", "comm: {scratch: -1}", `expected a number that is not negative, found -1`},
		"bytes":           {"j.yaml", "comm: {scratch: 12Q}", `"12Q": expected a number of bytes`},
		"overflow":        {"j.yaml", "comm: {scratch: 99999999999G}", `expected a number of bytes`},
		"duration":        {"j.yaml", "launch: {grace: 5}", `launch.grace: expected a duration with its unit, such as 30s, found 5`},
		"choice":          {"j.yaml", "log: {level: inof}", `log.level: "inof" (did you mean "info"?): expected debug, info, warn, error or none`},
		"section":         {"j.yaml", "comm: 7", `comm: expected a section with the keys scratch, deadline, max_blocks, found 7`},
		"list":            {"j.yaml", "transports: shm", `transports: expected a list, found the text "shm"`},
		"row":             {"j.yaml", "collectives:\n  table:\n  - algorithm: ring\n  - algoritm: ring\n", `j.yaml:4: unknown key "collectives.table.1.algoritm" (did you mean`},
		"row toml":        {"j.toml", "[[collectives.table]]\nalgorithm='a'\n[[collectives.table]]\nmax_byte=3\n", `j.toml:4: unknown key`},
		"name":            {"j.yaml", "transport: {IB0: {}}", `name "IB0": expected lower-case letters`},
		"syntax":          {"j.yaml", "comm: [", `yaml`},
		"toml syntax":     {"j.toml", "comm = ", `toml`},
		"duplicate":       {"j.yaml", "log: {}\nlog: {}\n", `already defined`},
		"extension":       {"j.json", "{}", `expected a file name that ends in .yaml, .yml, .toml`},
		"root":            {"j.yaml", "- a\n", `j.yaml`},
		"twice":           {"j.yaml", "transports: [shm, shm]", `j.yaml:1: transports: "shm" is listed twice`},
		"device":          {"j.yaml", "device: gpu", `j.yaml:1: device: "gpu": expected host, cuda, cuda:N, hip, hip:N or auto`},
		"shape":           {"j.yaml", "collectives: {table: [{algorithm: ring, threads: 2000}]}", `row 1: blocks 0, threads 2000: expected 0 to 1024`},
		"relative":        {"j.yaml", "plugins: {path: {x: {file: bin/x}}}", `plugins.path.x.file: "bin/x": expected an absolute path`},
		"checksum":        {"j.yaml", "plugins: {path: {x: {file: /x, sha256: abc}}}", `expected 64 hexadecimal digits`},
		"range":           {"j.yaml", "comm: {max_blocks: 2000}", `comm.max_blocks: 2000: expected 0 to 1024`},
		"small scratch":   {"j.yaml", "comm: {scratch: 1K}", `comm.scratch: 1KiB: expected 64KiB to 1TiB, or 0`},
		"lines":           {"j.yaml", "collectives: {lines: maybe}", `collectives.lines`},
		"sharing":         {"j.yaml", "collectives: {sharing: 2000}", `collectives.sharing: 2000: expected 0 to 1024`},
		"copy scratch":    {"j.yaml", "collectives: {copy_scratch: 1M}", `collectives.copy_scratch: 1MiB: expected 2MiB to 1TiB`},
		"unbounded":       {"j.yaml", "bootstrap: {timeout: 0s}", `every wait is bounded`},
		"ranks":           {"j.yaml", "collectives: {table: [{algorithm: a, min_ranks: 5, max_ranks: 4}]}", `row 1: max_ranks 4 is below min_ranks 5`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Load(Sources{Job: write(t, c.file, c.text)})
			if err == nil {
				t.Fatal("accepted")
			}
			if !errors.Is(err, framework.ErrInvalid) {
				t.Errorf("%v: expected ErrInvalid", err)
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %q\nexpected %q in it", err, c.want)
			}
		})
	}
}

func TestAllMistakesOfALayerAtOnce(t *testing.T) {
	_, err := Load(Sources{Job: write(t, "j.yaml", "comm: {scrach: 1}\nlog: {levl: info}\n")})
	if err == nil || !strings.Contains(err.Error(), "comm.scratch") || !strings.Contains(err.Error(), "log.level") {
		t.Errorf("error = %v, expected both keys", err)
	}
}

func TestFilesThatCannotBeRead(t *testing.T) {
	if _, err := Load(Sources{Job: "/nonexistent/job.yaml"}); !errors.Is(err, framework.ErrInvalid) {
		t.Errorf("missing job file: %v, expected ErrInvalid", err)
	}
	if _, err := Load(Sources{SystemBase: "/nonexistent/config"}); err != nil {
		t.Errorf("missing system file: %v, expected none", err)
	}
	if _, err := Load(Sources{Job: t.TempDir() + "/"}); err == nil {
		t.Error("a folder was accepted")
	}
	both := write(t, "config.yaml", "")
	base := strings.TrimSuffix(both, ".yaml")
	if err := os.WriteFile(base+".toml", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(Sources{SystemBase: base}); err == nil || !strings.Contains(err.Error(), "both") {
		t.Errorf("two files: %v, expected an error", err)
	}
	if err := os.Truncate(both, maxFile+1); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(Sources{Job: both}); !errors.Is(err, framework.ErrInvalid) {
		t.Errorf("huge file: %v, expected ErrInvalid", err)
	}
}

func TestEmptyFilesAndKeysKeepTheLayerBelow(t *testing.T) {
	for _, text := range []string{"", "# nothing\n", "comm:\n", "comm:\n  scratch:\n"} {
		e := load(t, Sources{Job: write(t, "j.yaml", text)})
		if e.Comm.Scratch != Default().Comm.Scratch {
			t.Errorf("%q: scratch = %v", text, e.Comm.Scratch)
		}
	}
}

func TestSecretsAreHidden(t *testing.T) {
	job := write(t, "j.yaml", "transport:\n  x: {auth_token: hunter2, note: plain}\nbootstrap: {secret_file: /run/s}\n")
	e := load(t, Sources{Job: job})
	var b strings.Builder
	if err := e.Print(&b); err != nil {
		t.Fatal(err)
	}
	out := b.String()
	if strings.Contains(out, "hunter2") || !strings.Contains(out, "(hidden)") {
		t.Errorf("the token is shown:\n%s", out)
	}
	if !strings.Contains(out, "plain") || !strings.Contains(out, "/run/s") {
		t.Errorf("too much is hidden:\n%s", out)
	}
	if e.Transport["x"]["auth_token"] != "hunter2" {
		t.Error("the value itself is gone")
	}
}

func TestChoicesAreOfExistingKeys(t *testing.T) {
	known := map[string]bool{}
	schema().leaves(func(n *node) { known[n.key] = true })
	for key := range choices {
		if !known[key] {
			t.Errorf("choices for %q: no such key", key)
		}
	}
	for name, f := range flatNames {
		for _, key := range f.keys {
			if schema().find(strings.Split(key, ".")) == nil {
				t.Errorf("%s is mapped to %q: no such key", name, key)
			}
		}
		if (len(f.keys) == 0) != (f.note != "") {
			t.Errorf("%s: expected keys or a note, one of both", name)
		}
	}
}
