// Package inspect has the verbs that look at what is there: the machine, and plugins.
package inspect

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mscclpp-go/mscclpp/cmd/mscclpp-run/internal/verb"
	"github.com/mscclpp-go/mscclpp/internal/version"
)

// Doctor says what works on this machine.
func Doctor(env *verb.Env) *cobra.Command {
	var format string
	c := &cobra.Command{
		Args: verb.FlagsAlone,
		RunE: func(c *cobra.Command, _ []string) error {
			if format != "table" && format != "json" {
				return verb.Usage("doctor: --format %q: expected table or json", format)
			}
			list := []finding{{"version", good, version.Full()}}
			list = append(list, examineHost("/")...)
			list = append(list, examineTools()...)
			cfg, err := env.Config()
			var plugins, others []finding
			if err == nil {
				text, wanted := transports(&cfg.Config)
				plugins = append([]finding{{"configuration", good, text}}, examinePlugins(inspect(c.Context(), cfg, nil), wanted)...)
				others = examineBackends(c.Context(), &cfg.Config)
			} else {
				plugins = []finding{{"configuration", fail, err.Error()}}
			}
			list = append(list, examineDevices("/", len(others) > 0)...)
			list = append(list, examineAMD(os.DirFS("/"), os.LookupEnv)...)
			list = append(append(list, others...), plugins...)
			return report(env, list, format)
		},
	}
	c.Flags().StringVar(&format, "format", "table", "table, or json with one object a line")
	return c
}

// report prints the findings; the program fails if one of them is that jobs will
// not run.
func report(env *verb.Env, list []finding, format string) error {
	failed := 0
	enc := json.NewEncoder(env.Stdout)
	for _, f := range list {
		if f.Grade == fail {
			failed++
		}
		var err error
		if format == "json" {
			err = enc.Encode(f)
		} else {
			_, err = fmt.Fprintf(env.Stdout, "%-4s  %-14s %s\n", f.Grade, f.Area, f.Detail)
		}
		if err != nil {
			return err
		}
	}
	if failed > 0 {
		return &verb.Error{Code: 1}
	}
	return nil
}

// examinePlugins grades the plugins: those that are configured must work.
func examinePlugins(list []found, configured []string) []finding {
	var out []finding
	works := map[string]bool{}
	for i := range list {
		f := &list[i]
		switch {
		case f.err != nil && works[f.Name]:
			out = append(out, finding{"plugin " + f.Name, note, f.err.Error()})
		case f.err != nil:
			out = append(out, finding{"plugin " + f.Name, warn, f.err.Error()})
		default:
			works[f.Name] = true
			out = append(out, finding{"plugin " + f.Name, good, fmt.Sprintf("%s, %s channels, %s", f.info.Description.Version, strings.Join(f.kinds(), ","), f.Path)})
			out = append(out, examineImages(f))
		}
	}
	for _, name := range configured {
		if !works[name] {
			out = append(out, finding{"plugin " + name, fail, "is configured and cannot be used; make build puts those of this project into bin/plugins"})
		}
	}
	return out
}
