package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/mscclpp-go/mscclpp/cmd/mscclpp-run/internal/inspect"
	"github.com/mscclpp-go/mscclpp/cmd/mscclpp-run/internal/measure"
	"github.com/mscclpp-go/mscclpp/cmd/mscclpp-run/internal/predict"
	"github.com/mscclpp-go/mscclpp/cmd/mscclpp-run/internal/verb"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/launch"
)

// entry is a verb: a command of mscclpp-run other than starting a program.
type entry struct {
	name  string
	short string

	// ranks: the verb is a job of its own. `mscclpp-run -n 4 bench …` starts four
	// processes `mscclpp-run bench …`; in each of them, and in the ranks of another
	// engine, the command runs.
	ranks bool

	command func(*verb.Env) *cobra.Command
}

// verbs lists all of them in the order of the help. Each has a file of its own.
var verbs = []entry{
	{name: "bench", short: "measure a collective over a range of sizes", ranks: true, command: measure.Bench},
	{name: "check", short: "verify the collectives in every combination", ranks: true, command: measure.Check},
	{name: "config", short: "print the effective configuration and where each value comes from", command: configCommand},
	{name: "conform", short: "run the conformance suite against a plugin", command: inspect.Conform},
	{name: "doctor", short: "say what works on this machine, and what is missing", command: inspect.Doctor},
	{name: "plugins", short: "list the plugins, what they offer, and why one is not used", command: inspect.Plugins},
	{name: "simulate", short: "predict collectives over many hosts from the parameters of links and adapters", command: predict.Command},
	{name: "topo", short: "print the processors, GPUs and NICs of this host and how they are connected", command: inspect.Topo},
	{name: "tune", short: "measure the algorithms, and write the table that chooses among them", ranks: true, command: measure.Tune},
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

// env is what verbs see of the launcher.
func (a *app) env() *verb.Env {
	return &verb.Env{
		Stdout: a.stdout, Stderr: a.stderr, Config: a.config,
		Asked: func() verb.Asked {
			o := &a.opts
			return verb.Asked{
				Ranks:    o.hosts != "" || o.hostfile != "" || o.np != 0 || o.perNode != "" || o.nnodes != 0,
				Settings: a.settings, ConfigFile: o.configFile,
			}
		},
	}
}

// prepare makes the command of the verb.
func (v *entry) prepare(a *app) *cobra.Command {
	c := v.command(a.env())
	c.Use, c.Short = strings.TrimSpace(v.name+" "+c.Use), v.short
	c.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "mscclpp-run " + v.name}
	c.SetUsageTemplate(c.UsageTemplate() + "\nThe launcher's own flags may stand here as well: see mscclpp-run --help.\n")
	c.SilenceErrors, c.SilenceUsage = true, true
	c.SetOut(a.stdout)
	c.SetErr(a.stderr)
	c.CompletionOptions.DisableDefaultCmd = true
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return verb.Usage("%s: %v", v.name, verb.Mistaken(err)) })
	c.InitDefaultHelpFlag()
	return c
}

// verb runs a verb here, or starts the ranks of one that runs in ranks. Args are
// what belongs to the verb; ranks get nothing else, or they would start ranks.
func (a *app) verb(v *entry, c *cobra.Command, args []string) error {
	c.SetArgs(append([]string{}, args...)) // not nil, for which cobra takes all of this process's
	if !v.ranks {
		switch hosts := a.opts.hosts != "" || a.opts.hostfile != ""; {
		case hosts && v.name != "simulate": // which has hosts of its own, and says so
			return verb.Usage("%s: it looks at this host and starts no ranks: expected no list of hosts", v.name)
		case a.opts.emit.kind != "":
			return verb.Usage("%s: it starts no ranks: expected no --emit", v.name)
		}
		return c.Execute()
	}
	if a.engine.Role == launch.RoleRank && a.opts.np == 0 && a.opts.perNode == "" {
		return a.inRank(c, args)
	}
	// Mistakes on the command line are to be reported once, not by every rank.
	if err := c.ParseFlags(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return c.Help()
		}
		return verb.Usage("%s: %v", v.name, verb.Mistaken(err))
	}
	if help, err := c.Flags().GetBool("help"); err == nil && help {
		return c.Help()
	}
	if err := c.ValidateArgs(c.Flags().Args()); err != nil {
		return verb.Usage("%s: %v", v.name, err)
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("own program: %w", err)
	}
	return a.launch(self, append([]string{"mscclpp-run", v.name}, args...))
}

// inRank runs a verb in this process, which is a rank already. What flags say
// reaches it as it reaches ranks that were started: through the environment.
func (a *app) inRank(c *cobra.Command, args []string) error {
	if len(a.settings) > 0 || a.opts.configFile != "" {
		if _, err := a.config(); err != nil { // a mistake in a flag is not to be blamed on a variable
			return err
		}
	}
	more, err := a.additions()
	if err != nil {
		return err
	}
	if err := a.asRank(); err != nil {
		return err
	}
	if o := &a.opts; o.masterAddr != "" || o.masterPort != 0 || o.rendezvous != "" {
		more = append(more, bootstrap.EnvAddr+"="+a.engine.MasterAddr)
		if a.engine.MasterPort != 0 {
			more = append(more, bootstrap.EnvPort+"="+strconv.Itoa(a.engine.MasterPort))
		}
	}
	if a.opts.dryRun {
		return a.printRank(append([]string{"mscclpp-run", c.Name()}, args...))
	}
	if a.opts.dir != "" {
		if err := os.Chdir(a.opts.dir); err != nil {
			return err
		}
	}
	for _, e := range more {
		name, value, _ := strings.Cut(e, "=")
		if err := os.Setenv(name, value); err != nil {
			return fmt.Errorf("variable %s: %w", name, err)
		}
	}
	return c.Execute()
}
