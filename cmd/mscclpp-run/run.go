package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/mscclpp-go/mscclpp/cmd/mscclpp-run/internal/apart"
	"github.com/mscclpp-go/mscclpp/cmd/mscclpp-run/internal/inspect"
	"github.com/mscclpp-go/mscclpp/cmd/mscclpp-run/internal/verb"
	"github.com/mscclpp-go/mscclpp/internal/version"
	"github.com/mscclpp-go/mscclpp/launch"
)

// run parses the flags and does what they ask for.
func (a *app) run(args []string) error {
	f := newFlags(&a.opts)
	f.Usage = func() {}
	a.flags = f
	if err := f.Parse(doubleDash(f, args)); err != nil {
		return a.misread(err)
	}
	if err := meant(f); err != nil {
		return err
	}
	switch {
	case a.opts.help:
		return a.help(f)
	case a.opts.version:
		return a.printVersion()
	case a.opts.serve:
		return a.serveAgent()
	case f.Changed(strings.TrimPrefix(apart.Flag, "--")):
		return apart.Serve(f.Args(), a.stdout, a.stderr)
	}
	rest := f.Args()
	switch {
	case len(rest) == 0:
		return verb.Usage("expected a program or a verb")
	case rest[0] == "":
		return verb.Usage("expected a program or a verb, and its name is empty")
	}
	module, _ := f.GetBool("module")
	if f.ArgsLenAtDash() != 0 && !module { // "--" makes it a program whatever its name
		if v, words := findCommand(rest); v != nil {
			return a.runVerb(v, rest[words:])
		}
	}
	if err := a.prepare(); err != nil {
		return err
	}
	if module {
		python := launch.Python(os.Environ())
		rest = append([]string{python, "-u", "-m"}, rest...)
	}
	return a.launch(rest[0], rest)
}

// misread is for flags that cannot be parsed.
func (a *app) misread(err error) error {
	if errors.Is(err, pflag.ErrHelp) {
		return a.help(a.flags)
	}
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) && unknown.GetSpecifiedName() == "device" { // a flag of bench and check, a setting for programs
		err = fmt.Errorf("%w: expected --set device=VALUE", err)
	}
	return verb.Usage("%v", verb.Mistaken(err))
}

// flagsOf are the flags of the command that arguments name first: a verb, or a command of it.
func flagsOf(c *cobra.Command, args []string) *pflag.FlagSet {
	for _, own := range c.Commands() {
		if len(args) > 0 && own.Name() == args[0] {
			return own.Flags()
		}
	}
	return c.Flags()
}

// runVerb runs a verb with what stands behind its name, where flags of the launcher may be too.
func (a *app) runVerb(v *entry, args []string) error {
	command := v.prepare(a)
	own, args := split(a.flags, flagsOf(command, args), args)
	if err := again(a.flags, v.name, own); err != nil {
		return err
	}
	if a.opts.version {
		return a.printVersion()
	}
	if a.flags.Changed("module") {
		return verb.Usage("%s --module: expected the flag before the name of a module of Python", v.name)
	}
	if err := a.prepare(); err != nil {
		return err
	}
	return a.verb(v, command, args)
}

// prepare reads the settings among the flags, and finds out which engine started this process.
func (a *app) prepare() (err error) {
	if a.settings, err = a.opts.settings(a.flags); err != nil {
		return err
	}
	if preload, _ := a.flags.GetBool("nccl"); preload {
		preload, err := inspect.Preload()
		if err != nil {
			return err
		}
		a.opts.export = append(a.opts.export, preload)
	}
	if !a.opts.standalone {
		a.engine, err = launch.Detect(os.Getenv)
	}
	return err
}

func (a *app) printVersion() error {
	_, err := fmt.Fprintln(a.stdout, "mscclpp-run", version.Full())
	return err
}

func (a *app) help(f *pflag.FlagSet) error {
	w := tabwriter.NewWriter(a.stdout, 0, 8, 2, ' ', 0)
	fmt.Fprint(w, `mscclpp-run starts one process for each rank on this host.

  mscclpp-run -n N [flags] [--] PROGRAM [ARGUMENTS]
  mscclpp-run [-n N] [flags] VERB [ARGUMENTS]     flags may also follow the verb
  mscclpp-run --host a,b -n N [flags] PROGRAM…    on several hosts, over ssh
  mscclpp-run --emit KIND [flags] PROGRAM…        a manifest for Slurm or Kubernetes

Under Slurm, Flux, Open MPI, torchrun, PMI, jsrun and Kubernetes it finds its place
in the environment; there -n is the number of ranks for each process of the engine.

Verbs:
`)
	for _, v := range verbs {
		fmt.Fprintf(w, "  %s\t%s\n", v.name, v.short)
	}
	fmt.Fprintf(w, "\nFlags:\n%s", f.FlagUsages())
	return w.Flush()
}
