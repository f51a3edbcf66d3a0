package config

import (
	"strings"
	"testing"
)

// A value that a configuration leaves open is shown with the choice that will be made, on the
// device that is configured or on either.
func TestChosenValuesAreShown(t *testing.T) {
	for device, want := range map[string]map[string]string{
		"":       {"transports": "[shm] on the host; on GPUs [cudaipc]", "comm.scratch": "32MiB on the host; on GPUs 64MiB for each rank, 256MiB at most", "device": "what the program asks for, else host"},
		"host":   {"transports": "[shm]", "comm.scratch": "32MiB", "collectives.lines": "always"},
		"cuda:1": {"transports": "[cudaipc]", "comm.scratch": "64MiB for each rank, 256MiB at most", "collectives.lines": "always if NVLink joins every two GPUs of the host, else never"},
	} {
		e := load(t, Sources{Flags: []Setting{{"device", device, "--set"}}})
		got := map[string]string{}
		for _, v := range e.Values() {
			got[v.Key] = v.Chosen
		}
		for key, text := range want {
			if got[key] != text {
				t.Errorf("device %q: %s will be %q, expected %q", device, key, got[key], text)
			}
		}
		var table strings.Builder
		if err := e.Print(&table); err != nil {
			t.Fatal(err)
		}
		if line := "0 (" + want["comm.scratch"] + ")"; !strings.Contains(table.String(), line) {
			t.Errorf("device %q: no %q in\n%s", device, line, table.String())
		}
	}
	// By default no value is one that only its reader's knowledge fills in.
	for _, v := range load(t, Sources{}).Values() {
		open := v.Value == "" || v.Value == "0" || v.Value == "0s" || v.Value == "auto" || v.Value == "[]"
		if lists := v.Key == "plugins.dirs" || v.Key == "plugins.embed"; open && !lists && v.Chosen == "" {
			t.Errorf("%s is %q, and nothing says what that will be", v.Key, v.Value)
		}
	}
	set := load(t, Sources{Flags: []Setting{{"comm.scratch", "1MiB", "-s"}, {"transports", "tcp", "-t"}, {"collectives.lines", "never", "-l"}}})
	for _, v := range set.Values() {
		if (v.Key == "comm.scratch" || v.Key == "transports" || v.Key == "collectives.lines") && v.Chosen != "" {
			t.Errorf("%s is set, and said to be %q", v.Key, v.Chosen)
		}
	}
}
