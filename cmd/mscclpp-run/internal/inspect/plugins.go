package inspect

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/mscclpp-go/mscclpp/cmd/mscclpp-run/internal/verb"
	"github.com/mscclpp-go/mscclpp/framework/config"
	"github.com/mscclpp-go/mscclpp/framework/kernel/image"
	"github.com/mscclpp-go/mscclpp/plugins"
)

// found is a plugin that the catalog knows, with what it answers.
type found struct {
	plugins.Entry
	info  plugins.Info
	asked bool           // info is what it answered
	code  map[string]int // by chip, of how many of its images there is machine code
	fault error          // of machine code that cannot be read
	err   error          // why it cannot be used; nil if it can
}

// Plugins lists plugins. A user who names transports wants to use them: the exit code is 1 if one
// of them has no plugin that works.
func Plugins(env *verb.Env) *cobra.Command {
	var options bool
	var format string
	c := &cobra.Command{
		Use:  "[TRANSPORT…]",
		Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, names []string) error {
			print := pluginTable
			switch {
			case format == "json":
				print = pluginsJSON
			case format != "table":
				return verb.Usage("plugins: --format %q: expected table or json", format)
			case options:
				print = pluginOptions
			}
			cfg, err := env.Config()
			if err != nil {
				return err
			}
			list := inspect(c.Context(), cfg, names)
			if err := print(env, list); err != nil {
				return err
			}
			return missing(cfg, list, names)
		},
	}
	c.Flags().BoolVar(&options, "options", false, "print the options of each transport")
	c.Flags().StringVar(&format, "format", "table", "table, or json with one object a line")
	return c
}

// missing says why a named transport has no plugin that works.
func missing(cfg *config.Effective, list []found, names []string) error {
	var all []error
	for _, name := range names {
		var reasons []error
		works := false
		for i := range list {
			if f := &list[i]; f.Name == name && f.err == nil {
				works = true
			} else if f.Name == name {
				reasons = append(reasons, fmt.Errorf("plugin %s: %s: %w", name, f.Path, f.err))
			}
		}
		if works {
			continue
		}
		if len(reasons) == 0 {
			_, _, err := catalogOf(cfg).Find(name)
			reasons = append(reasons, err)
		}
		all = append(all, reasons...)
	}
	return errors.Join(all...)
}

// inspect asks every plugin what it is; names limits which.
func inspect(ctx context.Context, cfg *config.Effective, names []string) []found {
	if ctx == nil {
		ctx = context.Background()
	}
	var out []found
	beside := catalogOf(cfg).Beside(image.MachineCodeFile)
	for _, e := range catalogOf(cfg).List() {
		if len(names) > 0 && !slices.Contains(names, e.Name) {
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
			if f.asked = f.err == nil; f.asked {
				f.err = f.info.Err
			}
			f.code, f.fault = codeOf(&f, beside)
		}
		out = append(out, f)
	}
	return out
}

// codeOf counts of how many images of a plugin there is machine code.
func codeOf(f *found, containers []string) (map[string]int, error) {
	var images []string
	for _, i := range f.info.Description.Images {
		images = append(images, i.SHA256)
	}
	if len(images) == 0 {
		return nil, nil
	}
	return image.MachineCode(containers, images)
}

// kinds are the kinds of channel of a transport: "memory", "port".
func (f *found) kinds() []string {
	words := []string{}
	for _, k := range f.info.Description.Channels {
		words = append(words, k.String())
	}
	return words
}

func pluginTable(env *verb.Env, list []found) error {
	w := tabwriter.NewWriter(env.Stdout, 0, 8, 2, ' ', 0)
	for i := range list {
		if i == 0 {
			fmt.Fprintln(w, "NAME\tVERSION\tPROTOCOL\tCHANNELS\tIMAGES\tFILE")
		}
		f := &list[i]
		if f.err != nil {
			fmt.Fprintf(w, "%s\t-\t-\trejected\t\t%s\n", f.Name, f.Path)
			continue
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%d\t%s\n", f.Name, f.info.Description.Version, f.info.ProtocolVersion, strings.Join(f.kinds(), ","), len(f.info.Description.Images), f.Path)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for i := range list {
		f := &list[i]
		var chips []string
		for _, chip := range slices.Sorted(maps.Keys(f.code)) {
			chips = append(chips, fmt.Sprintf("%s %d", chip, f.code[chip]))
		}
		if len(chips) > 0 {
			fmt.Fprintf(env.Stdout, "\n%s: images with machine code: %s\n", f.Name, strings.Join(chips, ", "))
		}
		if f.fault != nil {
			fmt.Fprintf(env.Stdout, "\n%s: %v\n", f.Name, f.fault)
		}
	}
	return pluginReasons(env, list, func(f *found) bool { return f.err != nil })
}

// pluginReasons prints why plugins are not shown, below what is.
func pluginReasons(env *verb.Env, list []found, which func(*found) bool) error {
	for i := range list {
		if f := &list[i]; which(f) {
			if _, err := fmt.Fprintf(env.Stdout, "\n%s: %v\n", f.Path, f.err); err != nil {
				return err
			}
		}
	}
	return nil
}

// pluginOptions prints the schema of each transport, which is its own. Where there is nothing to
// show there is no head either: the reasons stand alone.
func pluginOptions(env *verb.Env, list []found) error {
	w := tabwriter.NewWriter(env.Stdout, 0, 8, 2, ' ', 0)
	head := false
	for i := range list {
		for _, o := range list[i].info.Schema {
			if !head {
				fmt.Fprintln(w, "KEY\tTYPE\tDEFAULT\tMEANING")
				head = true
			}
			fmt.Fprintf(w, "transport.%s.%s\t%s\t%s\t%s\n", list[i].Name, o.Name, o.Type, o.Default, o.Help)
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return pluginReasons(env, list, func(f *found) bool { return !f.asked && f.err != nil })
}
