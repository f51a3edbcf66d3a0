package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/mscclpp-go/mscclpp/cmd/mscclpp-run/internal/inspect"
	"github.com/mscclpp-go/mscclpp/cmd/mscclpp-run/internal/measure"
	"github.com/mscclpp-go/mscclpp/cmd/mscclpp-run/internal/plans"
	"github.com/mscclpp-go/mscclpp/cmd/mscclpp-run/internal/predict"
	"github.com/mscclpp-go/mscclpp/cmd/mscclpp-run/internal/sight"
	"github.com/mscclpp-go/mscclpp/cmd/mscclpp-run/internal/verb"
)

// entry is a verb: a command of mscclpp-run other than starting a program.
type entry struct {
	name  string
	short string

	// ranks: the verb is a job of its own. `mscclpp-run -n 4 bench …` starts four
	// processes `mscclpp-run bench …`; in each of them, and in the ranks of another
	// engine, the command runs.
	ranks bool

	// configured: the verb reads the configuration of the job.
	configured bool

	command func(*verb.Env) *cobra.Command
}

// verbs lists all of them in the order of the help. Each has a file of its own.
var verbs = []entry{
	{name: "bench", short: "measure a collective over a range of sizes", ranks: true, command: measure.Bench},
	{name: "check", short: "verify the collectives in every combination", ranks: true, command: measure.Check},
	{name: "config", short: "print the effective configuration and where each value comes from", configured: true, command: configCommand},
	{name: "conform", short: "run the conformance suite against a plugin", configured: true, command: inspect.Conform},
	{name: "doctor", short: "say what works on this machine, and what is missing", configured: true, command: inspect.Doctor},
	{name: "nccl", short: "print the path of the NCCL-compatible library", command: inspect.NCCL},
	{name: "plan", short: "check, show, run and measure execution plans", command: plans.Command},
	{name: "plugins", short: "list the plugins, what they offer, and why one is not used", configured: true, command: inspect.Plugins},
	{name: "simulate", short: "predict collectives over many hosts from the parameters of links and adapters", command: predict.Command},
	{name: "status", short: "print what the ranks of running jobs do", command: sight.StatusVerb},
	{name: "topo", short: "print the processors, GPUs and NICs of this host and how they are connected", configured: true, command: inspect.Topo},
	{name: "trace", short: "tell what is in a trace, or record a running job", command: sight.TraceVerb},
	{name: "tune", short: "measure the algorithms, and write the table that chooses among them", ranks: true, command: measure.Tune},
}

// ofPlans are commands of the verb plan that are jobs of their own.
var ofPlans = []entry{
	{name: "plan bench", short: "measure an execution plan over a range of sizes", ranks: true, command: measure.PlanBench},
	{name: "plan run", short: "run an execution plan", ranks: true, command: measure.PlanRun},
}

// findCommand finds the verb that arguments begin with, and how many words it has.
func findCommand(args []string) (v *entry, words int) {
	if len(args) > 1 {
		for i := range ofPlans {
			if ofPlans[i].name == args[0]+" "+args[1] {
				return &ofPlans[i], 2
			}
		}
	}
	return findVerb(args[0]), 1
}

func findVerb(name string) *entry {
	for i := range verbs {
		if verbs[i].name == name {
			return &verbs[i]
		}
	}
	return nil
}

func verbNames() string {
	var names []string
	for _, v := range verbs {
		names = append(names, v.name)
	}
	return strings.Join(names, ", ")
}

// prepare makes the command of the verb.
func (v *entry) prepare(a *app) *cobra.Command {
	c := v.command(a.env())
	words := strings.Fields(v.name)
	c.Use, c.Short = strings.TrimSpace(words[len(words)-1]+" "+c.Use), v.short
	c.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "mscclpp-run " + v.name}
	c.SetUsageTemplate(c.UsageTemplate() + "\nThe launcher's own flags may stand here as well: see mscclpp-run --help.\n")
	c.SilenceErrors, c.SilenceUsage = true, true
	c.SetOut(a.stdout)
	c.SetErr(a.stderr)
	c.CompletionOptions.DisableDefaultCmd = true
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return verb.Usage("%s: %v", v.name, verb.Mistaken(err)) })
	c.InitDefaultHelpFlag()
	for i := range ofPlans {
		if strings.HasPrefix(ofPlans[i].name, v.name+" ") {
			c.AddCommand(ofPlans[i].listed(a))
		}
	}
	return c
}

// listed is a command of a verb as the verb's help has it. findCommand finds it before, unless a flag stands between the two.
func (v *entry) listed(a *app) *cobra.Command {
	c := v.prepare(a)
	c.Annotations = nil
	c.RunE = func(*cobra.Command, []string) error {
		return verb.Usage("%s: expected no flag between these words", v.name)
	}
	return c
}
