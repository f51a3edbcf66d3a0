package inspect

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/mscclpp-go/mscclpp/cmd/mscclpp-run/internal/verb"
	"github.com/mscclpp-go/mscclpp/framework/topo"
	"github.com/mscclpp-go/mscclpp/framework/topo/kfd"
	"github.com/mscclpp-go/mscclpp/framework/topo/nvml"
	"github.com/mscclpp-go/mscclpp/internal/atomicfile"
	"github.com/mscclpp-go/mscclpp/internal/setup"
)

// topoVerb prints the facts about the machine that transports get.
type topoVerb struct {
	format string // table or json
	svg    string // file for the drawing; "-": standard output instead of the table
	from   string // file of a recording to show instead of this machine
	record bool

	others []topo.Finder // of devices that the configuration names
}

// driverLimit is how long a driver may take to answer. With persistence mode off it
// starts each GPU anew, which takes seconds.
const driverLimit = time.Minute

// Topo returns the verb topo, which prints or draws the facts about the
// machine that transports get.
func Topo(env *verb.Env) *cobra.Command {
	var v topoVerb
	c := &cobra.Command{
		Args: verb.FlagsAlone,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := v.combined(c); err != nil {
				return verb.Usage("topo: %v", err)
			}
			if asked := env.Asked(); v.from != "" && len(asked.Settings) > 0 {
				return verb.Usage("topo: %s beside --from: a recording has all devices of its machine", asked.Settings[0].Flag)
			} else if v.from != "" && asked.ConfigFile != "" {
				return verb.Usage("topo: --config beside --from: a recording has all devices of its machine")
			}
			if v.from == "" {
				cfg, err := env.Config()
				if err != nil {
					return err
				}
				v.others = setup.Finders(&cfg.Config, slog.New(slog.DiscardHandler))
			}
			return v.run(c.Context(), env.Stdout)
		},
	}
	c.Flags().StringVar(&v.format, "format", "table", "table, or json")
	c.Flags().StringVar(&v.svg, "svg", "", "also draw the machine into this file; - for standard output alone")
	c.Flags().StringVar(&v.from, "from", "", "show the machine of this recording instead of this one")
	c.Flags().BoolVar(&v.record, "record", false, "print what was read, to reproduce a machine in a test")
	return c
}

// combined refuses flags that would be ignored beside others.
func (v *topoVerb) combined(c *cobra.Command) error {
	if v.record {
		return verb.Beside(c.Flags(), "--record", "a recording has one form", "format", "svg")
	}
	if v.svg == "-" {
		return verb.Beside(c.Flags(), "--svg -", "the drawing alone is on standard output", "format")
	}
	return nil
}

func (v *topoVerb) run(ctx context.Context, out io.Writer) error {
	if v.format != "table" && v.format != "json" {
		return verb.Usage("topo: --format %q: expected table or json", v.format)
	}
	root, find, err := v.source(ctx)
	if err != nil {
		return err
	}
	if v.record {
		return topo.Record(root, out, v.finders(root, find)...)
	}
	h, err := topo.Read(root, v.finders(root, find)...)
	if err != nil {
		return err
	}
	switch v.svg {
	case "":
	case "-":
		return h.SVG(out)
	default:
		if err := atomicfile.File(v.svg, h.SVG); err != nil {
			return fmt.Errorf("topo: --svg: %w", err)
		}
	}
	if v.format == "json" {
		return h.PrintJSON(out)
	}
	return h.Print(out)
}

// finders are those of NVIDIA's GPUs, or of a recording, of AMD's, and of other makers' devices.
func (v *topoVerb) finders(root fs.FS, first topo.Finder) []topo.Finder {
	return append([]topo.Finder{first, kfd.GPUs(root)}, v.others...)
}

// source is where the machine is read from, and the tool that finds its GPUs.
func (v *topoVerb) source(ctx context.Context) (fs.FS, topo.Finder, error) {
	if v.from == "" {
		return os.DirFS("/"), func() ([]topo.GPU, error) {
			ctx, cancel := context.WithTimeout(ctx, driverLimit)
			defer cancel()
			return nvml.Within(ctx)
		}, nil
	}
	text, err := verb.ReadInput(v.from, 2*driverLimit) // a recording may be under way
	if err != nil {
		return nil, nil, fmt.Errorf("topo: --from: %w", err)
	}
	root := topo.Replay(string(text))
	if _, err := fs.Stat(root, "sys"); err != nil {
		return nil, nil, verb.Usage("topo: --from %s: it is no recording: expected the output of mscclpp-run topo --record", v.from)
	}
	return root, topo.Recorded(root), nil
}
