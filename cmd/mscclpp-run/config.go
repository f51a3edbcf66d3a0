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
		RunE: func(c *cobra.Command, _ []string) error {
			if docs {
				if err := verb.Beside(c.Flags(), "--docs", "the reference of all keys has one form", "format"); err != nil {
					return verb.Usage("config: %v", err)
				}
				if err := noSettings(env, "config --docs"); err != nil {
					return err
				}
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

// noSettings refuses what the launcher's flags say of a configuration that is not read.
func noSettings(env *verb.Env, name string) error {
	asked := env.Asked()
	if len(asked.Settings) > 0 {
		return verb.Usage("%s: it reads no configuration: expected no %s", name, asked.Settings[0].Flag)
	}
	if asked.ConfigFile != "" {
		return verb.Usage("%s: it reads no configuration: expected no --config", name)
	}
	return nil
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
