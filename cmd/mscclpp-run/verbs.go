package main

import "github.com/spf13/cobra"

// verb is a command of mscclpp-run other than starting a program.
type verb struct {
	name  string
	short string

	// ranks: the verb is a job of its own. `mscclpp-run -n 4 bench …` starts four
	// processes `mscclpp-run bench …`; in each of them, and in the ranks of another
	// engine, the command runs.
	ranks bool

	command func(*app) *cobra.Command
}

// verbs lists all of them in the order of the help. Each has a file of its own.
var verbs = []verb{
	{name: "bench", short: "measure a collective over a range of sizes", ranks: true, command: benchCommand},
	{name: "check", short: "verify the collectives in every combination", ranks: true, command: checkCommand},
	{name: "config", short: "print the effective configuration and where each value comes from", command: configCommand},
	{name: "conform", short: "run the conformance suite against a plugin", command: conformCommand},
	{name: "doctor", short: "say what works on this machine, and what is missing", command: doctorCommand},
	{name: "plugins", short: "list the plugins, what they offer, and why one is not used", command: pluginsCommand},
	{name: "topo", short: "print the processors, GPUs and NICs of this host and how they are connected", command: topoCommand},
}

func findVerb(name string) *verb {
	for i := range verbs {
		if verbs[i].name == name {
			return &verbs[i]
		}
	}
	return nil
}
