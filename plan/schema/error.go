package schema

import (
	"fmt"
	"strings"

	"github.com/mscclpp-go/mscclpp/framework"
)

// Error says what is wrong with a plan, and where.
type Error struct {
	File    string // "" for a plan that comes from no file
	Line    int    // from 1; 0 where no text is known
	Path    string // as in gpus[0].threadblocks[1].ops[3].src_buff[0]; "" for the whole text
	Problem string
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("plan")
	if e.File != "" {
		b.WriteString(" " + e.File)
	}
	if e.Line > 0 {
		fmt.Fprintf(&b, ", line %d", e.Line)
	}
	if e.Path != "" {
		b.WriteString(", " + e.Path)
	}
	return b.String() + ": " + e.Problem
}

// Unwrap returns the class: the author of the plan made a mistake.
func (e *Error) Unwrap() error { return framework.ErrInvalid }
