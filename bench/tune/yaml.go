package tune

import (
	"fmt"
	"io"
	"strings"

	"github.com/mscclpp-go/mscclpp/bench/sizes"
)

// YAML writes rows as a configuration file, after comments that say where they come
// from.
func YAML(w io.Writer, rows []Row, about ...string) error {
	var b strings.Builder
	for _, line := range about {
		fmt.Fprintf(&b, "# %s\n", line)
	}
	b.WriteString("collectives:\n  table:")
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
