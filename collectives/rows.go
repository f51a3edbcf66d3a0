package collectives

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/internal/suggest"
)

// namedRows is how the configuration calls the table.
const namedRows = "collectives.table"

// exist are the algorithms of this module, on whatever device and over whatever transport:
// a table is often for several kinds of machines, and what one of them lacks is no mistake.
// Transports may carry others, and programs may add their own.
var exist = [collectives]string{
	AllReduce: "allpair_ll8 allpair_ll16 allpair_chunk twophase_ll8 twophase_ll16 twophase_chunk ring zerocopy pull switch " +
		"oneshot_ll8 oneshot_ll128 twoshot_ll128 stream_ll128 " + copying + levels + packetLevel,
	AllGather:     "ll8 ll16 chunk ring zerocopy pull push shares " + slots + copying + levels + packetLevel,
	ReduceScatter: "ll8 ll16 chunk zerocopy pull " + slots + copyName + levels + packetLevel,
	Broadcast:     "chunk zerocopy pull push shares fetch " + slots + copying + levels,
	Reduce:        "chunk zerocopy shares fetch twoshot_ll128 " + slots + copyName + levels,
	AllToAll:      "ll8 ll16 chunk zerocopy pull push shares " + slots + copying + levels,
	Barrier:       "signal " + portsName + " " + hierarchicalSmall + " " + hierarchicalDirect + packetLevel,
	AllToAllV:     forMessages, Gather: forMessages, Scatter: forMessages, SendRecv: forMessages,
}

const (
	copying     = copyName + " " + stagedName
	slots       = "direct_ll8 direct_ll128 stream_ll128 "
	levels      = " " + portsName + " " + hierarchicalSmall + " " + hierarchicalLarge + " " + hierarchicalDirect
	packetLevel = " " + hierarchicalPackets
	forMessages = chunksName + " " + linesName + " " + portsName + " " + hierarchicalDirect
)

// RowError is a mistake in a row of a table. It wraps framework.ErrInvalid.
type RowError struct {
	Row  int // from 1
	Text string
}

// Error names the row.
func (e *RowError) Error() string {
	return fmt.Sprintf("%s: row %d: %s: %v", namedRows, e.Row, e.Text, e.Unwrap())
}

// Unwrap returns the class.
func (e *RowError) Unwrap() error { return framework.ErrInvalid }

// checkRows refuses rows that nobody can mean: they would be passed over, and the program
// would run with other algorithms than its user thinks.
func (c *Comm) checkRows(rows []Row) error {
	for i := range rows {
		if text := c.mistake(&rows[i]); text != "" {
			return &RowError{i + 1, text}
		}
	}
	return nil
}

func (c *Comm) mistake(w *Row) string {
	switch {
	case w.Collective >= collectives:
		return fmt.Sprintf("%v: expected one of %s", w.Collective, kindNames())
	case w.Blocks < 0 || w.Threads < 0:
		return fmt.Sprintf("%d blocks of %d threads: expected none below 0", w.Blocks, w.Threads)
	case w.MinRanks < 0 || w.MaxRanks < 0 || w.MaxRanks != 0 && w.MaxRanks < w.MinRanks:
		return fmt.Sprintf("%d to %d ranks: expected none below 0, and the smaller number first", w.MinRanks, w.MaxRanks)
	}
	known, of := c.known(w.Collective), ""
	if w.Collective != 0 {
		of = " of " + w.Collective.String()
	}
	if slices.Contains(known, w.Algorithm) {
		return ""
	}
	return fmt.Sprintf("algorithm %q%s%s: expected one of %s", w.Algorithm, of, suggest.Hint(suggest.Name(w.Algorithm, known)), strings.Join(known, " "))
}

// known lists the algorithms that exist for a collective, or, for 0, for any: of this
// module, of the transports that the job has, and of the program.
func (c *Comm) known(k Collective) []string {
	var all []string
	for at := range exist {
		if k != 0 && at != int(k) {
			continue
		}
		all = append(all, strings.Fields(exist[at])...)
		for _, kernel := range c.comm.Kernels() {
			if kernel.Collective == Collective(at).String() {
				all = append(all, kernel.Algorithm)
			}
		}
		for _, a := range c.algorithms[at] {
			all = append(all, a.name)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// tellIdle says in the log which rows of the table have no effect, and why.
func (c *Comm) tellIdle() {
	var absent, messages []string
	for i := range c.table {
		w, of := &c.table[i], "any"
		if w.Collective != 0 {
			of = w.Collective.String()
		}
		text := fmt.Sprintf("%d (%s %s)", i+1, of, w.Algorithm)
		switch {
		case w.Collective.Messages():
			messages = append(messages, text)
		case !c.offers(w):
			absent = append(absent, text)
		}
	}
	tell := func(rows []string, why string) {
		if len(rows) > 0 {
			c.comm.Log().Info("rows of "+namedRows+" are passed over", "rows", strings.Join(rows, ", "), "because", why)
		}
	}
	tell(absent, "no transport of this job offers their algorithms")
	tell(messages, "messages do not go by the table")
}

// offers reports whether calls may find the algorithm of a row.
func (c *Comm) offers(w *Row) bool {
	for k, list := range c.algorithms {
		if (w.Collective == 0 || int(w.Collective) == k) && find(list, w.Algorithm) != nil {
			return true
		}
	}
	return false
}

// kindNames lists the names of the collectives in the order of their numbers.
func kindNames() string {
	var names []string
	for k := AllReduce; k < collectives; k++ {
		names = append(names, k.String())
	}
	return strings.Join(names, " ")
}
