// Package plans is the verb plan: execution plans are made, checked and shown. Package measure runs them.
package plans

import (
	"github.com/spf13/cobra"

	"github.com/mscclpp-go/mscclpp/cmd/mscclpp-run/internal/verb"
)

// Command returns the verb plan. Its own commands have long flags alone: short ones may be the launcher's.
func Command(env *verb.Env) *cobra.Command {
	c := &cobra.Command{
		Use: "bench|check|compile|run|show …",
		Long: `Execution plans are JSON files that say which operations every thread block of every rank
runs in a collective; docs/plans.md describes them. A check says before anything runs whether
a plan is right, or can hang, race, or give wrong results. mscclpp-run -n N plan run FILE runs
one, and plan bench FILE measures it.`,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return verb.Usage("plan: unknown command %q: expected bench, check, compile, run or show", args[0])
			}
			return verb.Usage("plan: expected a command: bench, check, compile, run or show")
		},
		Args: cobra.ArbitraryArgs,
	}
	c.AddCommand(check(env), compile(env), show(env))
	return c
}

// format checks the value of --format.
func format(name, value string) error {
	if value != "table" && value != "json" {
		return verb.Usage("plan %s: --format %q: expected table or json", name, value)
	}
	return nil
}
