package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/mscclpp-go/mscclpp/framework/topo"
)

// topoCommand prints the machine as transports are told about it.
func topoCommand(a *app) *cobra.Command {
	var format string
	var record bool
	c := &cobra.Command{
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if record {
				return topo.Record(os.DirFS("/"), a.stdout)
			}
			h, err := topo.System()
			if err != nil {
				return err
			}
			switch format {
			case "table":
				return h.Print(a.stdout)
			case "json":
				return h.PrintJSON(a.stdout)
			}
			return usage("topo: --format %q: expected table or json", format)
		},
	}
	c.Flags().StringVar(&format, "format", "table", "table, or json")
	c.Flags().BoolVar(&record, "record", false, "print the files that were read, to reproduce a machine in a test")
	return c
}
