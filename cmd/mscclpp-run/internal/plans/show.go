package plans

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/mscclpp-go/mscclpp/cmd/mscclpp-run/internal/verb"
	"github.com/mscclpp-go/mscclpp/plan/schema"
	"github.com/mscclpp-go/mscclpp/plan/verify"
)

func show(env *verb.Env) *cobra.Command {
	var ranks []int
	var drawing string
	var listed string
	c := &cobra.Command{
		Use:   "show FILE",
		Short: "print the operations of a plan",
		Long: `Print the operations of a plan, by rank and block. Operands are buffers with ranges of chunks:
i[0:2] are the first two chunks of the rank's input, o of its output, s of its scratch memory;
s@3[0:2] are those of rank 3, and i@0,1[0:2] those of all ranks of a switch channel.
With --svg, draw the plan into a file: time goes to the right, each block and each engine of a
port channel has a line, and arrows lead from signals to waits and from packets to their readers.
With --trace, print the events of that run instead, as JSON, one a line; --trace=OUT writes them into a file.`,
		RunE: func(_ *cobra.Command, files []string) error {
			if len(files) == 2 && listed == "-" {
				return verb.Usage("plan show: 2 files: expected one, and --trace=OUT with an equals sign")
			}
			if len(files) != 1 {
				return verb.Usage("plan show: %d files: expected one", len(files))
			}
			if listed == "-" && drawing == "-" {
				return verb.Usage("plan show: --trace beside --svg -: both go to standard output: expected a file for one of them")
			}
			p, err := schema.ReadFile(files[0])
			if err != nil {
				return err
			}
			for _, r := range ranks {
				if r < 0 || r >= len(p.GPUs) {
					return verb.Usage("plan show: --rank %d: the plan has ranks 0 to %d", r, len(p.GPUs)-1)
				}
			}
			if listed == "" && drawing == "" {
				return table(env.Stdout, p, ranks)
			}
			events, hang := verify.Trace(p)
			if len(events) > 0 && listed != "" {
				err = to(env.Stdout, "--trace", listed, func(w io.Writer) error { return printTrace(w, events, ranks) })
			}
			if len(events) > 0 && drawing != "" {
				err = errors.Join(err, drawTo(env.Stdout, drawing, p, events, ranks))
			}
			return errors.Join(err, hang)
		},
		Args: cobra.ArbitraryArgs,
	}
	c.Flags().IntSliceVar(&ranks, "rank", nil, "these ranks alone; default: all")
	c.Flags().StringVar(&drawing, "svg", "", "draw ranks, blocks and ports over time into this file; - is standard output")
	c.Flags().StringVar(&listed, "trace", "", "print the events of a run with symbols, one JSON object a line; =FILE: into a file")
	c.Flags().Lookup("trace").NoOptDefVal = "-"
	return c
}

// table prints a plan. Ranks is which of them, all if it is empty.
func table(w io.Writer, p *schema.Plan, ranks []int) error {
	kind := "not in place"
	if p.InPlace {
		kind = "in place"
	}
	fmt.Fprintf(w, "%s: %s, %d ranks, protocol %s, %s\n", p.Name, p.Collective, len(p.GPUs), p.Protocol, kind)
	fmt.Fprintf(w, "messages of %d to %d bytes in granules of %d; blocks of %d threads%s%s\n", p.MinSize, p.MaxSize, p.Alignment, p.ThreadsPerBlock,
		when(p.DoubleScratch, "; double scratch memory"), when(p.ReuseResources, "; resources are reused"))
	for r := range p.GPUs {
		if len(ranks) > 0 && !slices.Contains(ranks, r) {
			continue
		}
		g := &p.GPUs[r]
		fmt.Fprintf(w, "\nrank %d: chunks: %d of input, %d of output, %d of scratch memory%s\n", r, g.InputChunks, g.OutputChunks, g.ScratchChunks, semaphores(g))
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "BLOCK\tOP\tNAME\tOPERANDS\tCHANNELS")
		for b := range g.Blocks {
			lister{t, p, g, &g.Blocks[b]}.ops("", g.Blocks[b].Ops)
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	return nil
}

func when(is bool, text string) string {
	if is {
		return text
	}
	return ""
}

func semaphores(g *schema.GPU) string {
	if len(g.Semaphores) == 0 {
		return ""
	}
	var values []string
	for _, s := range g.Semaphores {
		values = append(values, fmt.Sprint(s.Init))
	}
	return "; semaphores at " + strings.Join(values, ", ")
}

// lister prints the operations of a block.
type lister struct {
	w     io.Writer
	plan  *schema.Plan
	gpu   *schema.GPU
	block *schema.Block
}

func (l lister) ops(prefix string, ops []schema.Op) {
	for i := range ops {
		o := &ops[i]
		fmt.Fprintf(l.w, "%d\t%s%d\t%s\t%s\t%s\n", l.block.ID, prefix, i, o.Name, l.operands(o), l.channels(o))
		l.ops(fmt.Sprintf("%s%d.", prefix, i), o.Ops)
	}
}

// operands returns the operands of an operation, or the numbers that it has in their place.
func (l lister) operands(o *schema.Op) string {
	switch o.Name {
	case schema.Barrier:
		return fmt.Sprintf("barrier %d of %d blocks", o.Barrier, o.Blocks)
	case schema.SemAcquire, schema.SemRelease:
		return "semaphores " + numbers(o.Semaphores)
	case schema.Pipeline:
		return fmt.Sprintf("%d chunks in units of %d bytes", o.Iter.NumChunks, o.Iter.Unit)
	case schema.GroupReduce:
		c := o.Load
		sw := l.gpu.Switches()[l.block.ChannelIDs(schema.Switch)[o.ChannelIDs[0]]]
		return fmt.Sprintf("%s %s → %s", o.Reduce, chunks(c.Buffer, sw.Ranks, c.Offset, c.Size), chunks(c.Dst.Buffer, nil, c.Dst.Index, c.Dst.Size))
	}
	if !o.Name.Data() {
		return ""
	}
	text := fmt.Sprintf("%s → %s", l.list(o, o.Src), l.list(o, o.Dst))
	if o.Name.Reduces() {
		text = string(o.Reduce) + " " + text
	}
	if o.Group != nil && o.Group.Size > 1 {
		text += fmt.Sprintf(", slice %d of %d", o.Group.ID, o.Group.Size)
	}
	return text
}

func (l lister) list(o *schema.Op, operands []schema.Operand) string {
	var parts []string
	for i := range operands {
		x := &operands[i]
		switch x.Kind {
		case schema.Remote:
			b := l.gpu.RemoteBuffers[l.block.RemoteIDs(o.Channel())[x.ID]]
			parts = append(parts, chunks(b.Type, []int{b.Rank}, x.Index, x.Size))
		case schema.Multicast:
			sw := l.gpu.Switches()[l.block.ChannelIDs(schema.Switch)[x.ID]]
			parts = append(parts, chunks(sw.Buffer, sw.Ranks, x.Index, x.Size))
		default:
			parts = append(parts, chunks(x.Buffer, nil, x.Index, x.Size))
		}
	}
	return strings.Join(parts, " ")
}

func chunks(b schema.Buffer, ranks []int, index, size int) string {
	at := ""
	if len(ranks) > 0 {
		at = "@" + numbers(ranks)
	}
	return fmt.Sprintf("%s%s[%d:%d]", b, at, index, index+size)
}

// channels returns the rank's numbers of the channels of an operation, with the ranks to which they lead.
func (l lister) channels(o *schema.Op) string {
	t := o.Channel()
	if t != schema.Memory && t != schema.Port {
		return when(t != schema.NoChannel, string(t))
	}
	ids, peers := l.block.ChannelIDs(t), l.gpu.Peers(t)
	parts := []string{string(t)}
	for _, id := range o.ChannelIDs {
		parts = append(parts, fmt.Sprintf("%d→%d", ids[id], peers[ids[id]]))
	}
	return strings.Join(parts, " ")
}

func numbers(list []int) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(list), " ", ","), "[]")
}
