package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/mscclpp-go/mscclpp/framework/config"
	"github.com/mscclpp-go/mscclpp/plugins"
)

// found is a plugin that the catalog knows, with what it answers.
type found struct {
	plugins.Entry
	info plugins.Info
	err  error // why it cannot be used; nil if it can
}

// pluginsCommand lists plugins.
func pluginsCommand(a *app) *cobra.Command {
	var options bool
	var format string
	c := &cobra.Command{
		Use:  "[TRANSPORT…]",
		Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, names []string) error {
			cfg, err := a.config()
			if err != nil {
				return err
			}
			list := inspect(c.Context(), cfg, names)
			if len(names) > 0 && len(list) == 0 {
				_, _, err := catalogOf(cfg).Find(names[0])
				return err
			}
			switch {
			case format == "json":
				return pluginsJSON(a, list)
			case format != "table":
				return usage("plugins: --format %q: expected table or json", format)
			case options:
				return pluginOptions(a, list)
			}
			return pluginTable(a, list)
		},
	}
	c.Flags().BoolVar(&options, "options", false, "print the options of each transport")
	c.Flags().StringVar(&format, "format", "table", "table, or json with one object a line")
	return c
}

// inspect asks every plugin what it is; names limits which.
func inspect(ctx context.Context, cfg *config.Effective, names []string) []found {
	if ctx == nil {
		ctx = context.Background()
	}
	var out []found
	for _, e := range catalogOf(cfg).List() {
		if len(names) > 0 && !contains(names, e.Name) {
			continue
		}
		f := found{Entry: e, err: e.Rejected}
		if f.err == nil {
			f.info, f.err = plugins.Inspect(ctx, plugins.Spec{
				Name: e.Name, Path: e.Path, SHA256: e.SHA256,
				Options:      cfg.Transport[e.Name],
				StartTimeout: time.Duration(cfg.Plugins.StartTimeout),
				Log:          quietLog(),
			})
			if f.err == nil {
				f.err = f.info.Err
			}
		}
		out = append(out, f)
	}
	return out
}

func contains(names []string, name string) bool {
	for _, n := range names {
		if n == name {
			return true
		}
	}
	return false
}

// kinds joins the kinds of channel of a transport: "memory,port".
func (f *found) kinds() string {
	var words []string
	for _, k := range f.info.Description.Channels {
		words = append(words, k.String())
	}
	return strings.Join(words, ",")
}

func pluginTable(a *app, list []found) error {
	w := tabwriter.NewWriter(a.stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tVERSION\tPROTOCOL\tCHANNELS\tIMAGES\tFILE")
	for i := range list {
		f := &list[i]
		if f.err != nil {
			fmt.Fprintf(w, "%s\t-\t-\trejected\t\t%s\n", f.Name, f.Path)
			continue
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%d\t%s\n", f.Name, f.info.Description.Version, f.info.ProtocolVersion, f.kinds(), len(f.info.Description.Images), f.Path)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for i := range list {
		if f := &list[i]; f.err != nil {
			fmt.Fprintf(a.stdout, "\n%s: %v\n", f.Path, f.err)
		}
	}
	return nil
}

// pluginOptions prints the schema of each transport, which is its own.
func pluginOptions(a *app, list []found) error {
	w := tabwriter.NewWriter(a.stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "KEY\tTYPE\tDEFAULT\tMEANING")
	for i := range list {
		for _, o := range list[i].info.Schema {
			fmt.Fprintf(w, "transport.%s.%s\t%s\t%s\t%s\n", list[i].Name, o.Name, o.Type, o.Default, o.Help)
		}
	}
	return w.Flush()
}

func pluginsJSON(a *app, list []found) error {
	enc := json.NewEncoder(a.stdout)
	for i := range list {
		f := &list[i]
		line := struct {
			Name     string   `json:"name"`
			Path     string   `json:"path"`
			Source   string   `json:"source"`
			Version  string   `json:"version,omitempty"`
			Protocol int      `json:"protocol,omitempty"`
			Channels []string `json:"channels,omitempty"`
			Images   int      `json:"images"`
			Error    string   `json:"error,omitempty"`
		}{Name: f.Name, Path: f.Path, Source: f.Source}
		if f.err != nil {
			line.Error = f.err.Error()
		} else {
			d := f.info.Description
			line.Version, line.Protocol, line.Images = d.Version, f.info.ProtocolVersion, len(d.Images)
			line.Channels = strings.Split(f.kinds(), ",")
		}
		if err := enc.Encode(line); err != nil {
			return err
		}
	}
	return nil
}
