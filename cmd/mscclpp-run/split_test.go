package main

import (
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// A flag that the launcher and a verb both had would mean one of the two things,
// depending on where it stands.
func TestNoFlagHasTwoMeanings(t *testing.T) {
	launcher := newFlags(&options{})
	for i := range verbs {
		c := verbs[i].prepare(&app{})
		for _, c := range append(c.Commands(), c) { // also of plan show
			c.Flags().VisitAll(func(f *pflag.Flag) {
				if f.Name == "help" || verbs[i].name == "simulate" && f.Name == "hosts" {
					return // simulate refuses the launcher's: another test
				}
				if c.Name() == "show" && f.Name == "trace" {
					return // plan show runs no ranks, which a trace of the launcher would be of
				}
				if other := launcher.Lookup(f.Name); other != nil {
					t.Errorf("--%s belongs to %s and, as --%s, to the launcher", f.Name, c.Name(), other.Name)
				}
				if f.Shorthand != "" && launcher.ShorthandLookup(f.Shorthand) != nil {
					t.Errorf("-%s is --%s of %s and --%s of the launcher", f.Shorthand, f.Name, c.Name(), launcher.ShorthandLookup(f.Shorthand).Name)
				}
			})
		}
	}
}

func TestSplit(t *testing.T) {
	for _, c := range []struct{ args, own, rest string }{
		{"allreduce -n 4 --log-level none", "-n 4 --log-level none", "allreduce"},
		{"-n4 allreduce -b 8 -e 1K", "-n4", "allreduce -b 8 -e 1K"},
		{"allreduce -np 2 -bind-to core -c", "--np 2 --bind-to core", "allreduce -c"},
		{"--np=2 --bytes=1K allreduce --log_level=none", "--np=2 --log_level=none", "--bytes=1K allreduce"},
		{"allreduce -cqn 4", "-q -n 4", "allreduce -c"},                      // letters of both in one word
		{"allreduce -cb8 -cn4", "-n4", "allreduce -c -b8 -c"},                // values in the same word
		{"allreduce --bytes -n -o --np", "", "allreduce --bytes -n -o --np"}, // values, whatever they look like
		{"allreduce --set --check --check", "--set --check", "allreduce --check"},
		{"allreduce -n", "-n", "allreduce"}, // the value is missing: for Parse to say
		{"allreduce -- -n 4", "", "allreduce -- -n 4"},
		{"allreduce --tee=false -x A -x B=-n", "--tee=false -x A -x B=-n", "allreduce"},
		{"allreduce --nosuch -y -", "", "allreduce --nosuch -y -"}, // for the verb to refuse
		{"allreduce --help -h", "", "allreduce --help -h"},
		{"", "", ""},
	} {
		own, rest := split(newFlags(&options{}), findVerb("bench").prepare(&app{}).Flags(), strings.Fields(c.args))
		if !slices.Equal(own, strings.Fields(c.own)) || !slices.Equal(rest, strings.Fields(c.rest)) {
			t.Errorf("%s: %q and %q, want %q and %q", c.args, own, rest, c.own, c.rest)
		}
	}
}

// Ranks are given none of the launcher's flags: with -n they would start ranks.
func TestFlagsBehindTheVerb(t *testing.T) {
	for _, args := range []string{
		"bench allreduce -n 2 --log-level none --dry-run -b 1K -x A=b",
		"bench -np 2 --set log.level=none --dry-run allreduce -x A=b -b 1K",
		"-n 2 bench --log-level none allreduce --dry-run -n 2 -b 1K -x A=b",
		"-n 2 --log-level=none --dry-run -x A=b bench allreduce -b 1K",
	} {
		code, out, errs := runs(command(t, strings.Fields(args)...))
		lines := sortedLines(out)
		if code != 0 || len(lines) != 2 || !strings.HasPrefix(lines[1], "RANK=1 WORLD_SIZE=2 ") {
			t.Fatalf("%s: code %d, %s%s", args, code, out, errs)
		}
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range lines {
			_, program, _ := strings.Cut(line, self)
			words := strings.Fields(program)
			slices.Sort(words)
			if !slices.Equal(words, []string{"-b", "1K", "allreduce", "bench"}) {
				t.Errorf("%s: the ranks get %q", args, program)
			}
		}
	}
	if code, out, errs := runs(command(t, "config", "--set", "comm.scratch=2MiB", "--format", "json")); code != 0 || !strings.Contains(out, `"comm.scratch","value":"2MiB"`) {
		t.Errorf("config --set: code %d, %s", code, errs)
	}
	if code, out, errs := runs(command(t, "check", "--list", "-V")); code != 0 || !strings.HasPrefix(out, "mscclpp-run ") {
		t.Errorf("code %d, %q, %s", code, out, errs)
	}
	if code, out, _ := runs(command(t, "bench", "-n", "2", "--help")); code != 0 || !strings.Contains(out, "--algorithm") {
		t.Errorf("help of the verb: code %d, %s", code, out)
	}
}

func TestMistakesBehindTheVerb(t *testing.T) {
	for args, want := range map[string]string{
		"-n 2 bench allreduce -n 20":                  "--np is 2 before bench and 20 after it: expected one of them; it is the number of ranks",
		"--log-level info check --log-level none":     "--log-level is info before check and none after it",
		"bench allreduce -n":                          "bench: flag needs an argument: 'n' in -n",
		"bench allreduce -n two":                      `bench: invalid argument "two"`,
		"bench allreduce -n -1":                       "-n -1: expected at least 1",
		"bench allreduce -n 0":                        "-n 0: expected at least 1",
		"check -n 2 --set novalue":                    "expected KEY=VALUE",
		"bench allreduce -n 2 --byte 8":               "bench: unknown flag: --byte",
		"bench allreduce --nnodes 2":                  "--nnodes 2: expected --node-rank",
		"-n 2 -- bench allreduce --nnodes":            "program bench: not found",
		"plugins --log-level":                         "plugins: flag needs an argument: --log-level",
		"bench allreduce -n 2 --nproc-per-node=three": "expected a number, gpu, cpu or auto",
	} {
		c := command(t, strings.Fields(args)...)
		c.Env = append(c.Env, "PATH=/nonexistent")
		code, _, errs := runs(c)
		if code != 2 && code != 127 || !strings.Contains(errs, want) {
			t.Errorf("%s: code %d, %q; expected %q", args, code, errs, want)
		}
	}
}

// A verb in a rank that an engine made: what flags say reaches it as well.
func TestFlagsOfAVerbInARank(t *testing.T) {
	made := []string{"TORCHELASTIC_RUN_ID=7", "RANK=0", "WORLD_SIZE=1", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=1"}
	for args, want := range map[string]string{
		"--transports nosuch check --list":           `"nosuch"`,
		"check --list --transports nosuch":           `"nosuch"`,
		"check --list --set comm.scrach=1":           `did you mean "comm.scratch"?`,
		"check --list --config /nonexistent.yaml":    "no such file",
		"check --list -x MSCCLPP_LOG__LEVEL=shouted": "shouted",
	} {
		c := command(t, strings.Fields(args)...)
		c.Env = append(c.Env, made...)
		if code, _, errs := runs(c); code == 0 || !strings.Contains(errs, want) {
			t.Errorf("%s: code %d, %s; expected %q", args, code, errs, want)
		}
	}
	c := command(t, "check", "--dry-run", "--list", "--chdir", "/")
	c.Env = append(c.Env, made...)
	if code, out, errs := runs(c); code != 0 || out != "rank 0 of 1 (torchrun): mscclpp-run check --list\n" {
		t.Errorf("code %d, %q, %s", code, out, errs)
	}
}

func TestHelpOfEveryVerb(t *testing.T) {
	for _, v := range verbs {
		a := &app{stdout: io.Discard, stderr: io.Discard}
		c := v.prepare(a)
		var b strings.Builder
		c.SetOut(&b)
		if err := c.Help(); err != nil || !strings.Contains(b.String(), "help for mscclpp-run "+v.name) || !strings.Contains(b.String(), "mscclpp-run --help") {
			t.Errorf("%s: %v\n%s", v.name, err, b.String())
		}
	}
}
