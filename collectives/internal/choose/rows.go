package choose

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mscclpp-go/mscclpp/collectives/internal/engine"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/collective"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/internal/suggest"
)

// TableKey is how the configuration calls the table.
const TableKey = "collectives.table"

// RowError is a mistake in a row of a table. It wraps framework.ErrInvalid.
type RowError struct {
	Row  int // from 1
	Text string
}

// Error names the row.
func (e *RowError) Error() string {
	return fmt.Sprintf("%s: row %d: %s: %v", TableKey, e.Row, e.Text, e.Unwrap())
}

// Unwrap returns the class.
func (e *RowError) Unwrap() error { return framework.ErrInvalid }

// CheckRows refuses rows that cannot be meant: they would be passed over, and the program
// would run with other algorithms than its user thinks. The algorithms are those of this module, of the kernels
// that transports have, and the offered ones.
func CheckRows(rows []engine.Row, kernels []comm.Kernel, offered []*engine.Algorithm) error {
	for i := range rows {
		if text := mistake(&rows[i], kernels, offered); text != "" {
			return &RowError{i + 1, text}
		}
	}
	return nil
}

func mistake(w *engine.Row, kernels []comm.Kernel, offered []*engine.Algorithm) string {
	switch {
	case w.Collective >= collective.Kinds:
		return fmt.Sprintf("%v: expected one of %s", w.Collective, kindNames())
	case w.Blocks < 0 || w.Threads < 0:
		return fmt.Sprintf("%d blocks of %d threads: expected none below 0", w.Blocks, w.Threads)
	case w.MinRanks < 0 || w.MaxRanks < 0 || w.MaxRanks != 0 && w.MaxRanks < w.MinRanks:
		return fmt.Sprintf("%d to %d ranks: expected none below 0, and the smaller number first", w.MinRanks, w.MaxRanks)
	case w.Type != nil && *w.Type >= kernel.DataTypes:
		return fmt.Sprintf("type %d: expected one of 0 (%v) to %d (%v)", uint32(*w.Type), kernel.DataType(0), uint32(kernel.DataTypes-1), kernel.DataType(kernel.DataTypes-1))
	case w.Op != nil && *w.Op >= kernel.Ops:
		return fmt.Sprintf("op %d: expected one of 0 (%v) to %d (%v)", uint32(*w.Op), kernel.Op(0), uint32(kernel.Ops-1), kernel.Op(kernel.Ops-1))
	}
	known, of := known(w.Collective, kernels, offered), ""
	if w.Collective != 0 {
		of = " of " + w.Collective.String()
	}
	if slices.Contains(known, w.Algorithm) {
		return ""
	}
	return fmt.Sprintf("algorithm %q%s%s: expected one of %s", w.Algorithm, of, suggest.Hint(suggest.Name(w.Algorithm, known)), strings.Join(known, " "))
}

// known lists the algorithms that exist for a collective, or, for 0, for any.
func known(of collective.Kind, kernels []comm.Kernel, offered []*engine.Algorithm) []string {
	var all []string
	for k := collective.Kind(1); k < collective.Kinds; k++ {
		if of != 0 && k != of {
			continue
		}
		all = append(all, Existing(k)...)
		for _, kernel := range kernels {
			if kernel.Collective == k.String() {
				all = append(all, kernel.Algorithm)
			}
		}
		for _, a := range offered {
			if a.Collective == k {
				all = append(all, a.Name)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Idle lists the rows that have no effect: those whose algorithms nothing offers, and those of messages, which do
// not go by the table.
func Idle(rows []engine.Row, offered []*engine.Algorithm, unplaced []engine.Unplaced) (absent, messages []string) {
	for i := range rows {
		w, of := &rows[i], "any"
		if w.Collective != 0 {
			of = w.Collective.String()
		}
		text := fmt.Sprintf("%d (%s %s)", i+1, of, w.Algorithm)
		found := func(a *engine.Algorithm) bool {
			return a.Name == w.Algorithm && (w.Collective == 0 || w.Collective == a.Collective)
		}
		switch {
		case w.Collective.Messages():
			messages = append(messages, text)
		case !slices.ContainsFunc(offered, found):
			if reason := engine.Why(unplaced, w.Collective, w.Algorithm); reason != nil {
				text += fmt.Sprintf(", for %v", reason)
			}
			absent = append(absent, text)
		}
	}
	return absent, messages
}

// kindNames lists the names of the collectives in the order of their numbers.
func kindNames() string {
	var names []string
	for k := collective.Kind(1); k < collective.Kinds; k++ {
		names = append(names, k.String())
	}
	return strings.Join(names, " ")
}
