package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/mscclpp-go/mscclpp/framework/config"
	"github.com/mscclpp-go/mscclpp/internal/version"
	"github.com/mscclpp-go/mscclpp/launch"
)

// app is one run of the program.
type app struct {
	stdout, stderr io.Writer
	opts           options
	settings       []config.Setting
	engine         launch.Engine
	effective      *config.Effective
}

// run parses the flags and does what they ask for.
func (a *app) run(args []string) error {
	f := newFlags(&a.opts)
	f.Usage = func() {}
	if err := f.Parse(doubleDash(f, args)); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return a.help(f)
		}
		return usage("%v", err)
	}
	switch {
	case a.opts.help:
		return a.help(f)
	case a.opts.version:
		_, err := fmt.Fprintln(a.stdout, "mscclpp-run", version.Full())
		return err
	}
	var err error
	if a.settings, err = a.opts.settings(f); err != nil {
		return err
	}
	rest := f.Args()
	if len(rest) == 0 {
		return usage("expected a program or a verb")
	}
	if !a.opts.standalone {
		if a.engine, err = launch.Detect(os.Getenv); err != nil {
			return err
		}
	}
	if f.ArgsLenAtDash() != 0 { // "--" makes it a program whatever its name
		if v := findVerb(rest[0]); v != nil {
			return a.verb(v, rest)
		}
	}
	return a.launch(rest[0], rest)
}

// config loads the configuration once, and prints its warnings.
func (a *app) config() (*config.Effective, error) {
	if a.effective != nil {
		return a.effective, nil
	}
	job := a.opts.configFile
	if job != "" {
		abs, err := filepath.Abs(job)
		if err != nil {
			return nil, err
		}
		job = abs
		a.opts.configFile = abs
	}
	e, err := config.Load(config.Standard(job, a.settings))
	if err != nil {
		return nil, err
	}
	// Ranks see the same environment: one process speaks for all.
	if a.engine.Role != launch.RoleRank || a.engine.LocalRank == 0 && a.engine.Name != "mscclpp-run" {
		for _, w := range e.Warnings {
			fmt.Fprintln(a.stderr, "mscclpp-run: warning:", w)
		}
	}
	a.effective = e
	return e, nil
}

// verb runs a verb here, or starts the ranks of one that runs in ranks.
func (a *app) verb(v *verb, args []string) error {
	c := v.command(a)
	c.Use, c.Short = v.name+" "+c.Use, v.short
	c.SilenceErrors, c.SilenceUsage = true, true
	c.SetOut(a.stdout)
	c.SetErr(a.stderr)
	c.SetArgs(args[1:])
	c.CompletionOptions.DisableDefaultCmd = true
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usage("%s: %v", v.name, err) })
	if !v.ranks || a.engine.Role == launch.RoleRank && a.opts.np == 0 {
		return c.Execute()
	}
	// Mistakes on the command line are to be reported once, not by every rank.
	c.InitDefaultHelpFlag()
	if err := c.ParseFlags(args[1:]); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return c.Help()
		}
		return usage("%s: %v", v.name, err)
	}
	if help, err := c.Flags().GetBool("help"); err == nil && help {
		return c.Help()
	}
	if err := c.ValidateArgs(c.Flags().Args()); err != nil {
		return usage("%s: %v", v.name, err)
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("own program: %w", err)
	}
	return a.launch(self, append([]string{"mscclpp-run"}, args...))
}

func (a *app) help(f *pflag.FlagSet) error {
	w := tabwriter.NewWriter(a.stdout, 0, 8, 2, ' ', 0)
	fmt.Fprint(w, `mscclpp-run starts one process for each rank on this host.

  mscclpp-run -n N [flags] [--] PROGRAM [ARGUMENTS]
  mscclpp-run [-n N] [flags] VERB [ARGUMENTS]

Under Slurm, Open MPI, torchrun, PMI, jsrun and Kubernetes it finds its place in
the environment; there -n is the number of ranks for each process of the engine.

Verbs:
`)
	for _, v := range verbs {
		fmt.Fprintf(w, "  %s\t%s\n", v.name, v.short)
	}
	fmt.Fprintf(w, "\nFlags:\n%s", f.FlagUsages())
	return w.Flush()
}
