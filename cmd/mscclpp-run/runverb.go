package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/mscclpp-go/mscclpp/cmd/mscclpp-run/internal/verb"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/launch"
)

// verb runs a verb here, or starts the ranks of one that runs in ranks. Args are
// what belongs to the verb; ranks get nothing else, or they would start ranks.
func (a *app) verb(v *entry, c *cobra.Command, args []string) error {
	c.SetArgs(append([]string{}, args...)) // not nil, for which cobra takes all of this process's
	if !v.ranks {
		switch hosts := a.opts.listsHosts(); {
		case hosts && v.name != "simulate": // which has hosts of its own, and says so
			return verb.Usage("%s: it looks at this host and starts no ranks: expected no list of hosts", v.name)
		case a.opts.emit.kind != "":
			return verb.Usage("%s: it starts no ranks: expected no --emit", v.name)
		}
		c.PersistentPreRunE = func(*cobra.Command, []string) error { return a.unused(v) } // behind --help
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
	return a.launch(self, slices.Concat([]string{"mscclpp-run"}, strings.Fields(v.name), args))
}

// unused refuses flags of the launcher that would be ignored by a verb that starts no ranks.
func (a *app) unused(v *entry) error {
	for _, name := range startFlags {
		if a.flags.Changed(name) {
			return verb.Usage("%s: it starts no ranks: expected no --%s", v.name, name)
		}
	}
	if v.configured {
		return nil
	}
	return noSettings(a.env(), v.name)
}

// unusedHere refuses flags that would be ignored where ranks are started.
func (a *app) unusedHere() error {
	if a.opts.listsHosts() {
		return nil
	}
	names := []string{"ssh"}
	if a.opts.emit.kind == "" {
		names = append(names, "agent") // of which a manifest has the path
	}
	for _, name := range names {
		if a.flags.Changed(name) {
			return verb.Usage("--%s is for a list of hosts: expected --host or --hostfile as well", name)
		}
	}
	return nil
}

// inRank runs a verb in this process, which is a rank already. Flags reach it as they reach ranks
// that were started: through the environment.
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
