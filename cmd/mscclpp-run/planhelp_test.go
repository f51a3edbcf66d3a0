package main

import (
	"strings"
	"testing"
)

// The help of plan has all its commands, those that are jobs of their own too, and each of these says how it is called.
func TestHelpOfPlan(t *testing.T) {
	for args, wants := range map[string][]string{
		"plan --help":       {"bench       measure an execution plan", "check       say whether", "compile     make", "run         run an execution plan", "show        print"},
		"plan bench --help": {"mscclpp-run plan bench FILE... [flags]"},
		"plan run --help":   {"mscclpp-run plan run FILE... [flags]"},
		"plan help bench":   {"mscclpp-run plan bench FILE... [flags]"},
	} {
		out, err := command(t, strings.Fields(args)...).CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v", args, err)
		}
		for _, want := range wants {
			if !strings.Contains(string(out), want) {
				t.Errorf("%s: expected %q in\n%s", args, want, out)
			}
		}
	}
}
