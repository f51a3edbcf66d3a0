package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
)

// A value of another kind than a key has is refused, with file and line, the key, what
// was expected, and what was found, in the terms of the file.
func TestValuesOfAnotherKind(t *testing.T) {
	for _, c := range []struct{ text, line, want string }{
		{"log:\n  level: [a]\n", ":2", "log.level: expected text, found a list"},
		{"log:\n  level:\n    a: 1\n", ":2", "log.level: expected text, found a section"},
		{"launch:\n  tag_output: 'maybe'\n", ":2", `launch.tag_output: expected true or false, found the text "maybe"`},
		{"launch:\n  tag_output: 1\n", ":2", "launch.tag_output: expected true or false, found 1"},
		{"\ntransports: shm\n", ":2", `transports: expected a list, found the text "shm"`},
		{"transports: [shm, 7]\n", ":1", "transports[1]: expected text, found 7"},
		{"comm:\n  max_blocks: -4\n", ":2", "comm.max_blocks: expected a number that is not negative, found -4"},
		{"comm:\n  max_blocks: 18446744073709551615\n", ":2", "comm.max_blocks: 18446744073709551615 is too large: expected a whole number of at most"},
		{"comm:\n  max_blocks: 1.5\n", ":2", "comm.max_blocks: expected a whole number, found 1.5"},
		{"comm:\n  deadline: 30\n", ":2", "comm.deadline: expected a duration with its unit, such as 30s, found 30"},
		{"comm:\n  deadline: [1s]\n", ":2", "comm.deadline: expected a duration with its unit"},
		{"comm: 3\n", ":1", "comm: expected a section"},
		{"log:\n  level: loud\n", ":2", `log.level: "loud"`},
	} {
		file := write(t, "job.yaml", c.text)
		_, err := Load(Sources{Job: file})
		if !errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), file+c.line) {
			t.Errorf("%q: %v: expected ErrInvalid from line %s that says %q", c.text, err, c.line, c.want)
		}
	}
}

// Each rule about what keys mean together, or beyond their type, is kept; all that are
// broken are named at once, with where they come from.
func TestRulesBeyondTypes(t *testing.T) {
	for setting, want := range map[Setting]string{
		{"device", "gpu", "-d"}:                                                                 "expected host, cuda, cuda:N, hip, hip:N or auto",
		{"device", "tpu:0", "-d"}:                                                               "expected host, cuda, cuda:N, hip, hip:N or auto",
		{"transports", "shm,Shm", "-t"}:                                                         `name "Shm": expected lower-case letters`,
		{"transports", "shm,shm", "-t"}:                                                         `"shm" is listed twice`,
		{"plugins.path.x.file", "rel", "-p"}:                                                    "expected an absolute path",
		{"plugins.path.x.sha256", "xy", "-p"}:                                                   "expected 64 hexadecimal digits",
		{"plugins.path.x.sha256", "abcd", "-p"}:                                                 "expected 64 hexadecimal digits",
		{"comm.max_blocks", "1025", "-b"}:                                                       "expected 0 to 1024",
		{"comm.scratch", "1KiB", "-s"}:                                                          "expected 64KiB to 1TiB",
		{"comm.scratch", "2TiB", "-s"}:                                                          "expected 64KiB to 1TiB",
		{"collectives.sharing", "2000", "-c"}:                                                   "expected 0 to 1024",
		{"collectives.copy_scratch", "1MiB", "-c"}:                                              "expected 2MiB to 1TiB",
		{"bootstrap.timeout", "0s", "-w"}:                                                       "every wait is bounded",
		{"bootstrap.heartbeat", "0s", "-w"}:                                                     "a silent host would go unnoticed",
		{"plugins.start_timeout", "0s", "-w"}:                                                   "every wait is bounded",
		{"comm..scratch", "1MiB", "-s"}:                                                         "names separated by single dots",
		{"comm.max_blocks", "many", "-b"}:                                                       `expected a whole number, found the text "many"`,
		{"launch.tag_output", "perhaps", "-o"}:                                                  `expected true or false, found the text "perhaps"`,
		{"collectives.table", "[{collective: allreduce}]", "-T"}:                                "row 1: expected an algorithm",
		{"collectives.plans", "[{unverified: true}]", "-T"}:                                     "entry 1: expected a path",
		{"collectives.plans", "[{path: x, packets: 4}]", "-T"}:                                  "entry 1: packets of 4 bytes: expected 8 or 16",
		{"collectives.table", "[{collective: allreduce, algorithm: ring, blocks: 2000}]", "-T"}: "blocks 2000, threads 0: expected 0 to 1024",
		{"collectives.table", "[{collective: allreduce, algorithm: ring, min_ranks: 5, max_ranks: 3}]", "-T"}: "max_ranks 3 is below min_ranks 5",
	} {
		_, err := Load(Sources{Flags: []Setting{setting}})
		if !errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), setting.Flag) {
			t.Errorf("%+v: %v: expected ErrInvalid that names the flag and says %q", setting, err, want)
		}
	}
	_, err := Load(Sources{Job: write(t, "job.yaml", "transports: [shm]\nplugins: {embed: [tcp]}\nbootstrap: {timeout: 0s}\n")})
	for _, want := range []string{`plugins.embed: "tcp" is not in transports`, "bootstrap.timeout: 0s"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: expected %q", err, want)
		}
	}
	if e := load(t, Sources{Flags: []Setting{{"device", "cuda:3", "-d"}, {"plugins.path.x.sha256", strings.Repeat("0f", 32), "-p"}, {"plugins.path.x.file", "/x", "-p"}}}); e.Device != "cuda:3" {
		t.Errorf("device %q", e.Device)
	}
}

// Files that cannot be read, or are not what their name says, name themselves.
func TestFilesThatAreNone(t *testing.T) {
	folder := t.TempDir()
	for file, want := range map[string]string{
		filepath.Join(folder, "none.yaml"):           "none.yaml",
		write(t, "job.yaml", "comm: [\n"):            "job.yaml",
		write(t, "job.toml", "comm = {\n"):           "job.toml",
		write(t, "job.ini", "x=1\n"):                 "job.ini",
		write(t, "list.yaml", "- shm\n"):             "list.yaml",
		write(t, "twice.yaml", "comm: {}\ncomm: {}"): "twice.yaml",
	} {
		if _, err := Load(Sources{Job: file}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v: expected an error that names the file", want, err)
		}
	}
	// Of a folder two files may not both be the configuration.
	for _, name := range []string{"config.yaml", "config.toml"} {
		if err := os.WriteFile(filepath.Join(folder, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Load(Sources{SystemBase: filepath.Join(folder, "config")}); err == nil || !strings.Contains(err.Error(), "config.yaml") || !strings.Contains(err.Error(), "config.toml") {
		t.Errorf("two files: %v: expected an error that names both", err)
	}
}

// An alias may neither contain itself nor multiply what it stands for without end, and
// a second document, which would have no effect, may not be there.
func TestYAMLOfOneFiniteDocument(t *testing.T) {
	laughs := "a: &a [x, x, x, x, x, x, x, x, x]\n"
	for last := 'a'; last < 'k'; last++ {
		laughs += fmt.Sprintf("%c: &%c [%s]\n", last+1, last+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*%c, ", last), 9), ", "))
	}
	for text, want := range map[string]string{
		"transports: &all [*all]\n":                        "contains itself",
		"transport: &all\n  shm: *all\n":                   "contains itself",
		laughs:                                             "excessive aliasing",
		"comm: {}\n---\nlog:\n  level: debug\n":            "line 2: a second document begins, expected one",
		"---\ncomm: {}\n---\n\nlog: {level: [}\n":          "did not find expected node content",
		"transports: &one [shm]\nplugins: {embed: *one}\n": "",
		"---\ncomm: {}\n...\n# the end\n":                  "",
		"comm: {}\n---\n# the end\n":                       "",
		"comm: {}\n---\n---\nlog: {}\n":                    "line 3: a second document begins",
	} {
		_, err := Load(Sources{Job: write(t, "job.yaml", text)})
		if want == "" && err != nil || want != "" && (err == nil || !errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%.40q: %v: expected %q", text, err, want)
		}
	}
}

func TestStandardSources(t *testing.T) {
	home := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", home)
	t.Setenv("MSCCLPP_CONFIG", "/named/by/environment.yaml")
	flags := []Setting{{"log.level", "debug", "--log-level"}}
	s := Standard("", flags)
	if s.SystemBase != "/etc/mscclpp/config" || s.UserBase != filepath.Join(home, "mscclpp", "config") || s.Job != "/named/by/environment.yaml" || len(s.Flags) != 1 || len(s.Environ) == 0 {
		t.Errorf("%+v", s)
	}
	if s := Standard("job.yaml", nil); s.Job != "job.yaml" {
		t.Errorf("job file %q: expected the one that was named", s.Job)
	}
	t.Setenv("XDG_CONFIG_HOME", "not/absolute")
	if s := Standard("job.yaml", nil); s.UserBase != "" {
		t.Errorf("%q: expected no user's file where there is no folder for it", s.UserBase)
	}
}

// A printed value can be written in a file, and means the same there.
func TestValuesPrintAsTheyAreWritten(t *testing.T) {
	const table = "[{collective: allreduce, max_bytes: 64KiB, registered: true, algorithm: ring}]"
	e := load(t, Sources{Flags: []Setting{{"collectives.table", table, "-T"}, {"transport.shm.deep", "{a: [1, x]}", "-o"}, {"comm.deadline", "90s", "-w"}}})
	found := map[string]string{}
	for _, v := range e.Values() {
		found[v.Key] = v.Value
	}
	again := load(t, Sources{Job: write(t, "job.yaml", "collectives:\n  table: "+found["collectives.table"]+"\ncomm:\n  deadline: "+found["comm.deadline"]+"\n")})
	row, want := again.Collectives.Table[0], e.Collectives.Table[0]
	if row.MaxBytes != want.MaxBytes || row.Algorithm != "ring" || row.Registered == nil || !*row.Registered || again.Comm.Deadline != Duration(90*time.Second) {
		t.Errorf("%q becomes %+v, deadline %v", found["collectives.table"], row, again.Comm.Deadline)
	}
	var out strings.Builder
	if err := e.Print(&out); err != nil || !strings.Contains(out.String(), "transport.shm.deep") || !strings.Contains(out.String(), `""`) {
		t.Errorf("%v\n%s", err, out.String())
	}
}

// Names and levels of the C++ library become ours, and what is none stays what it is, so
// that the error shows it.
func TestValuesOfMSCCLPP(t *testing.T) {
	for in, want := range map[string]string{"trace": "debug", "Debug": "debug", "INFO": "info", "warning": "warn", "ABORT": "error", "version": "error", "none": "none", "loud": "loud"} {
		if got := logLevel(in); got != want {
			t.Errorf("level %s becomes %s, expected %s", in, got, want)
		}
	}
	for in, want := range map[string]string{"af_inet": "inet", "INET": "inet", "AF_INET6": "inet6", "inet6": "inet6", "AF_UNIX": "AF_UNIX"} {
		if got := family(in); got != want {
			t.Errorf("family %s becomes %s, expected %s", in, got, want)
		}
	}
}

// A mistake in TOML is on the line that the message names, whatever the parser says of it.
func TestTOMLMistakesHaveLines(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		line int
	}{
		"a value without quotes": {"[comm]\nscratch = 64MiB\n", 2},
		"a key that comes twice": {"[comm]\n\nscratch = \"1MiB\"\nscratch = \"2MiB\"\n\n[log]\n", 4},
		"a table twice":          {"[comm]\n[log]\n# and again\n[comm]\n[launch]\n", 4},
		"a table over a value":   {"comm = 3\n[comm.x]\na = 1\n", 2},
		"a number without room":  {"[comm]\nmax_blocks = 99999999999999999999\n", 2},
		"no end":                 {"[log]\nlevel = \"x", 2},
		"no end of a list":       {"[log]\ntransports = [\n\"shm\",\n", 3},
		"behind a mark":          {"\xef\xbb\xbf[comm]\nscratch = 64MiB\n", 2},
	} {
		file := write(t, "job.toml", c.text)
		_, err := Load(Sources{Job: file})
		if !errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), fmt.Sprintf("%s:%d: toml: ", file, c.line)) {
			t.Errorf("%s: %v: expected ErrInvalid that names line %d", name, err, c.line)
		}
	}
}

// Editors put a byte order mark in front of a file. It is no part of the text.
func TestByteOrderMark(t *testing.T) {
	for name, text := range map[string]string{"job.toml": "[comm]\nscratch = \"64MiB\"\n", "job.yaml": "comm:\n  scratch: 64MiB\n"} {
		file := write(t, name, "\xef\xbb\xbf"+text)
		e, err := Load(Sources{Job: file})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if from := e.Origin("comm.scratch"); e.Comm.Scratch != 64<<20 || from.Line != 2 {
			t.Errorf("%s: scratch %v from %v, expected 64MiB from line 2", name, e.Comm.Scratch, from)
		}
	}
}

// A number that is too large is right in form, and the message names its size, from whatever layer.
func TestNumbersThatAreTooLarge(t *testing.T) {
	for _, c := range []struct{ key, value string }{
		{"comm.max_blocks", "99999999999999999999"}, {"comm.max_blocks", "9223372036854775808"},
		{"comm.scratch", "99999999999999999999"}, {"comm.scratch", "17179869184G"}, {"comm.scratch", "18446744073709551616"},
		{"comm.deadline", "99999999999h"}, {"comm.deadline", "9999999999999999999999s"},
	} {
		section, name, _ := strings.Cut(c.key, ".")
		for layer, s := range map[string]Sources{
			"file":     {Job: write(t, "job.yaml", fmt.Sprintf("%s: {%s: %s}\n", section, name, c.value))},
			"variable": {Environ: []string{EnvName(c.key) + "=" + c.value}},
			"flag":     {Flags: []Setting{{c.key, c.value, "--set"}}},
		} {
			_, err := Load(s)
			if !errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), " is too large: expected ") {
				t.Errorf("%s %s from a %s: %v: expected ErrInvalid that says that it is too large", c.key, c.value, layer, err)
			}
		}
	}
	for _, c := range []struct{ key, value string }{{"comm.max_blocks", "-99999999999999999999"}, {"comm.deadline", "-99999999999h"}, {"comm.scratch", "many"}} {
		if _, err := Load(Sources{Flags: []Setting{{c.key, c.value, "--set"}}}); err == nil || strings.Contains(err.Error(), "too large") {
			t.Errorf("%s %s: %v", c.key, c.value, err)
		}
	}
}
