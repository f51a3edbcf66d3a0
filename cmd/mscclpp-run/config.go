package main

import (
	"encoding/json"

	"github.com/spf13/cobra"

	"github.com/mscclpp-go/mscclpp/cmd/mscclpp-run/internal/verb"
	"github.com/mscclpp-go/mscclpp/framework/config"
)

// configCommand prints the configuration.
func configCommand(env *verb.Env) *cobra.Command {
	var docs bool
	var format string
	c := &cobra.Command{
		Args: verb.FlagsAlone,
		RunE: func(*cobra.Command, []string) error {
			if docs {
				return config.WriteDocs(env.Stdout)
			}
			e, err := env.Config()
			if err != nil {
				return err
			}
			switch format {
			case "table":
				return e.Print(env.Stdout)
			case "json":
				return printJSON(env, e.Values())
			}
			return verb.Usage("config: --format %q: expected table or json", format)
		},
	}
	c.Flags().BoolVar(&docs, "docs", false, "print the reference of all keys instead")
	c.Flags().StringVar(&format, "format", "table", "table, or json with one object a line")
	return c
}

func printJSON(env *verb.Env, values []config.Value) error {
	enc := json.NewEncoder(env.Stdout)
	for _, v := range values {
		err := enc.Encode(struct {
			Key    string `json:"key"`
			Value  string `json:"value"`
			Layer  string `json:"layer"`
			Origin string `json:"origin"`
			Chosen string `json:"chosen,omitempty"` // the value that will be chosen, where the setting leaves the choice
		}{v.Key, v.Value, v.Origin.Layer, v.Origin.String(), v.Chosen})
		if err != nil {
			return err
		}
	}
	return nil
}
