package main

import (
	"encoding/json"

	"github.com/spf13/cobra"

	"github.com/mscclpp-go/mscclpp/framework/config"
)

// configCommand prints the configuration.
func configCommand(a *app) *cobra.Command {
	var docs bool
	var format string
	c := &cobra.Command{
		Args: flagsAlone,
		RunE: func(*cobra.Command, []string) error {
			if docs {
				return config.WriteDocs(a.stdout)
			}
			e, err := a.config()
			if err != nil {
				return err
			}
			switch format {
			case "table":
				return e.Print(a.stdout)
			case "json":
				return printJSON(a, e.Values())
			}
			return usage("config: --format %q: expected table or json", format)
		},
	}
	c.Flags().BoolVar(&docs, "docs", false, "print the reference of all keys instead")
	c.Flags().StringVar(&format, "format", "table", "table, or json with one object a line")
	return c
}

func printJSON(a *app, values []config.Value) error {
	enc := json.NewEncoder(a.stdout)
	for _, v := range values {
		err := enc.Encode(struct {
			Key    string `json:"key"`
			Value  string `json:"value"`
			Layer  string `json:"layer"`
			Origin string `json:"origin"`
			Chosen string `json:"chosen,omitempty"` // what a value will be that leaves the choice
		}{v.Key, v.Value, v.Origin.Layer, v.Origin.String(), v.Chosen})
		if err != nil {
			return err
		}
	}
	return nil
}
