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
