package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A name that is nearly right is answered with the one that was probably meant.
func TestDidYouMean(t *testing.T) {
	folder := t.TempDir() // of plugins
	if err := os.WriteFile(filepath.Join(folder, "mscclpp-transport-shm"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string]string{
		`unknown transport "shn": did you mean "shm"?`:                   "-n 1 --transports shn --set plugins.dirs=" + folder + " bench allreduce",
		`options for transport "shn" (did you mean "shm"?)`:              "-n 1 --set transport.shn.x=1 --set transports=shm bench allreduce",
		`expected the flag before the name of a module of Python`:        "-n 1 bench allreduce --module",
		`collective "allreduc" (did you mean "allreduce"?)`:              "-n 1 bench allreduc",
		`collective "all-gathr" (did you mean "allgather"?)`:             "simulate all-gathr",
		`element type "fp16" (did you mean "f16"?)`:                      "-n 1 bench allreduce --dtype fp16",
		`reduction "smu" (did you mean "sum"?)`:                          "-n 1 bench allreduce --op smu",
		`--algorithm "flat-rng" (did you mean "flat-ring"?)`:             "simulate --algorithm flat-rng",
		`--machine "h10" (did you mean "h100"?)`:                         "simulate --machine h10",
		`kind "sbach" (did you mean "sbatch"?)`:                          "--emit sbach -n 1 true",
		`nor is it a verb (did you mean "bench"?)`:                       "-n 1 bensh",
		`bench allreduce: algorithm "rnig" (did you mean "ring"?)`:       "-n 1 --set plugins.embed=shm bench allreduce --device host --algorithm rnig",
		`algorithm "rnig" of allreduce (did you mean "ring"?): expected`: "-n 1 --set plugins.embed=shm --set transports=shm --set collectives.table=[{collective:allreduce,algorithm:rnig}] bench allreduce --device host",
	} {
		words := strings.Fields(args)
		for i, w := range words {
			words[i] = strings.NewReplacer(":", ": ", ",", ", ").Replace(w)
			if !strings.Contains(w, "{") {
				words[i] = w
			}
		}
		if code, _, errs := runs(command(t, words...)); code == 0 || !strings.Contains(errs, want) {
			t.Errorf("%s: code %d, %s, expected %q", args, code, errs, want)
		}
	}
}

// A full disk is no mistake on the command line, and nothing that could not be printed was
// a success.
func TestFullDisk(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	for _, args := range []string{"config", "config --docs", "--version", "--help", "bench --help", "simulate --hosts 2 --bytes 1K", "-n 2 --dry-run true", "--emit sbatch -n 2 --nnodes 2 true"} {
		c := command(t, strings.Fields(args)...)
		c.Stdout = full
		var errs strings.Builder
		c.Stderr = &errs
		_ = c.Run() // the code says it
		if code := c.ProcessState.ExitCode(); code != 1 || !strings.Contains(errs.String(), "no space left on device") || strings.Contains(errs.String(), "See mscclpp-run --help") {
			t.Errorf("%s: code %d, %s: expected code 1, the reason, and no hint at the command line", args, code, errs.String())
		}
	}
}

// A rank whose output is lost names no other rank as the cause, and no other rank names it: one line says why, and the
// launcher's which rank it was.
func TestFullDiskOfAJob(t *testing.T) {
	for name, args := range map[string][]string{
		"bench": {"bench", "allreduce", "-b", "4:64"}, "json": {"bench", "allreduce", "-b", "4:64", "--format", "json"}, "plot": {"bench", "allreduce", "-b", "64", "--plot", "/dev/full"},
		"check": {"check", "--at-most", "3"}, "cases": {"check", "--list"}, "tune": {"tune", "allreduce", "-b", "1K"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer full.Close()
			c := command(t, append([]string{"-n", "2", "--set", "plugins.embed=tcp", "--set", "transports=tcp"}, append(args, "--device", "host")...)...)
			c.Env = append(c.Env, "MSCCLPP_OBSERVE__ENABLED=false")
			var errs strings.Builder
			c.Stderr = &errs
			if name != "plot" {
				c.Stdout = full
			}
			_ = c.Run() // the code says it
			code, lines := c.ProcessState.ExitCode(), strings.Split(strings.TrimSpace(errs.String()), "\n")
			if code != 1 || len(lines) != 2 || strings.Count(errs.String(), "no space left on device") != 1 || strings.Count(errs.String(), "rank 0 (pid ") != 1 {
				t.Errorf("code %d, %s: expected 1, the reason, and the rank", code, errs.String())
			}
		})
	}
}

// A place where a drawing cannot be is found before anything is measured.
func TestPlotThatCannotBe(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "no", "x.svg")
	for _, args := range [][]string{
		{"-q", "-n", "2", "--set", "plugins.embed=tcp", "--set", "transports=tcp", "bench", "allreduce", "-b", "1K", "--device", "host", "--plot"},
		{"-q", "-n", "2", "--set", "plugins.embed=tcp", "--set", "transports=tcp", "tune", "allreduce", "-b", "1K", "--device", "host", "--out"},
		{"simulate", "--hosts", "2", "--bytes", "1K", "--plot"},
	} {
		code, out, errs := runs(command(t, append(args, missing)...))
		want := args[len(args)-1] + " " + missing + ": stat " + filepath.Dir(missing) + ": no such file or directory\n"
		if code != 1 || out != "" || !strings.HasSuffix(errs, want) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%q: code %d, %q, %s: expected one error before the first result", args, code, out, errs)
		}
	}
}

// A reader that has read enough of a measurement, as head has, ends it on all ranks, and nobody is
// blamed.
func TestClosedPipeEndsAMeasurement(t *testing.T) {
	for name, args := range map[string][]string{
		"bench": {"bench", "allreduce", "-b", "4:1M", "--device", "host"}, "bench, json": {"bench", "allreduce", "-b", "4:1M", "--device", "host", "--format", "json"},
		"check": {"check", "--at-most", "100", "--device", "host"}, "cases": {"check", "--list"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			read, write, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			c := command(t, append([]string{"-n", "2", "--set", "plugins.embed=tcp", "--set", "transports=tcp"}, args...)...)
			var errs strings.Builder
			c.Stdout, c.Stderr = write, &errs
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			write.Close()
			if _, err := read.Read(make([]byte, 1)); err != nil {
				t.Error(err)
			}
			read.Close()
			if err := c.Wait(); err != nil || errs.String() != "" {
				t.Errorf("%v, %q: expected a quiet end", err, errs.String())
			}
		})
	}
}

// A number that is too large is called that, wherever it stands.
func TestNumbersOutOfRange(t *testing.T) {
	const huge = "99999999999999999999999"
	machine := filepath.Join(t.TempDir(), "m.yaml")
	if err := os.WriteFile(machine, []byte("base: h100\nnics: 1e999\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"-n " + huge + " true":                                "out of range",
		"-n 1 bench allreduce --iters " + huge:                "out of range",
		"-n 1 bench allreduce --graph 1," + huge:              "out of range",
		"-n 1 bench allreduce --bytes " + huge:                "too large",
		"-n 1 check --case allreduce,f32,sum," + huge:         "out of range",
		"-n 1 --set device=cuda:" + huge + " true":            "too large a number",
		"-n 1 --set comm.max_blocks=" + huge + " true":        "too large",
		"simulate --hosts " + huge:                            "too large",
		"simulate --hosts 2:" + huge:                          "too large",
		"simulate --gpus " + huge:                             "too large",
		"simulate --bytes 1K," + huge:                         "too large",
		"simulate --nics 1e999":                               "out of range",
		"simulate --machine " + machine:                       "line 2: nics: 1e999 is out of range",
		"--emit sbatch --nproc-per-node " + huge + " -- true": "expected 1 to 1024",
	} {
		code, _, errs := runs(command(t, strings.Fields(args)...))
		if code == 0 || !strings.Contains(errs, want) || !strings.Contains(errs, huge) && !strings.Contains(errs, "1e999") {
			t.Errorf("%s: code %d, %s: expected the number, and %q", args, code, errs, want)
		}
	}
}
