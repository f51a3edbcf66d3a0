package tune

import (
	"fmt"
	"io"
	"strings"

	"github.com/mscclpp-go/mscclpp/bench/sizes"
)

// Plan is an execution plan of which a row has the name: a configuration with the row says where the plan is.
type Plan struct {
	Path       string
	Unverified bool
	Packets    int // bytes of each; 0: the default
}

// YAML writes rows as a configuration file, after comments that say where they come
// from.
func YAML(w io.Writer, rows []Row, about ...string) error { return WithPlans(w, rows, nil, about...) }

// WithPlans is YAML with the plans that rows name.
func WithPlans(w io.Writer, rows []Row, plans []Plan, about ...string) error {
	var b strings.Builder
	for _, line := range about {
		fmt.Fprintf(&b, "# %s\n", line)
	}
	b.WriteString("collectives:\n")
	if len(plans) > 0 {
		b.WriteString("  plans:\n")
	}
	for _, p := range plans {
		fmt.Fprintf(&b, "    - {path: %q", p.Path)
		if p.Unverified {
			b.WriteString(", unverified: true")
		}
		if p.Packets != 0 {
			fmt.Fprintf(&b, ", packets: %d", p.Packets)
		}
		b.WriteString("}\n")
	}
	b.WriteString("  table:")
	if len(rows) == 0 {
		b.WriteString(" []\n")
	} else {
		b.WriteString("\n")
	}
	for _, r := range rows {
		fmt.Fprintf(&b, "    - {collective: %s, max_bytes: %s, min_ranks: %d, max_ranks: %d, registered: %v, algorithm: %s", r.Collective, sizes.Format(r.MaxBytes), r.Ranks, r.Ranks, r.Registered, r.Algorithm)
		if r.Blocks > 0 {
			fmt.Fprintf(&b, ", blocks: %d", r.Blocks)
		}
		if r.Threads > 0 {
			fmt.Fprintf(&b, ", threads: %d", r.Threads)
		}
		fmt.Fprintf(&b, "} # %.2f us\n", r.TimeUS)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
