// Package matrix checks collectives over everything that can be combined: collective ×
// type × reduction × size × in or out of place × algorithm × kind of buffer × alignment
// × root. It implements the verb check of mscclpp-run.
package matrix

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/mscclpp-go/mscclpp/bench"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// Case is one call to check.
type Case struct {
	Collective bench.Collective
	Type       kernel.DataType
	Op         kernel.Op
	Count      int // as the call takes it
	Root       int
	Offset     int    // of the buffers from a page boundary, in elements
	Algorithm  string // "" is the selector's choice
	InPlace    bool
	Registered bool
}

// String is the form that --case takes: "allreduce,f32,sum,1023,in-place,registered,offset=1,algorithm=ring".
func (c Case) String() string {
	parts := []string{c.Collective.String(), c.Type.String()}
	if c.Collective.Reduces() {
		parts = append(parts, c.Op.String())
	}
	parts = append(parts, strconv.Itoa(c.Count))
	for _, flag := range []struct {
		set  bool
		text string
	}{{c.InPlace, "in-place"}, {c.Registered, "registered"}} {
		if flag.set {
			parts = append(parts, flag.text)
		}
	}
	if c.Root != 0 {
		parts = append(parts, "root="+strconv.Itoa(c.Root))
	}
	if c.Offset != 0 {
		parts = append(parts, "offset="+strconv.Itoa(c.Offset))
	}
	if c.Algorithm != "" {
		parts = append(parts, "algorithm="+c.Algorithm)
	}
	return strings.Join(parts, ",")
}

// ParseCase is the inverse of String. The words may come in any order behind the
// collective.
func ParseCase(text string) (Case, error) {
	words := strings.Split(text, ",")
	collective, err := bench.ParseCollective(words[0])
	if err != nil {
		return Case{}, fmt.Errorf("%w: case %q: %w", framework.ErrInvalid, text, err)
	}
	c := Case{Collective: collective, Count: -1}
	for _, w := range words[1:] {
		if err := c.word(strings.TrimSpace(w)); err != nil {
			return Case{}, fmt.Errorf("%w: case %q: %w", framework.ErrInvalid, text, err)
		}
	}
	if c.Count < 0 {
		return Case{}, fmt.Errorf("%w: case %q: no count of elements", framework.ErrInvalid, text)
	}
	if c.InPlace && !c.Collective.HasInPlace() {
		return Case{}, fmt.Errorf("%w: case %q: %s has no in-place form", framework.ErrInvalid, text, c.Collective)
	}
	return c, nil
}

func (c *Case) word(w string) error {
	if name, value, ok := strings.Cut(w, "="); ok {
		return c.assign(name, value)
	}
	switch w {
	case "in-place":
		c.InPlace = true
		return nil
	case "registered":
		c.Registered = true
		return nil
	}
	if t, err := kernel.ParseDataType(w); err == nil {
		c.Type = t
		return nil
	}
	if op, err := kernel.ParseOp(w); err == nil && c.Collective.Reduces() {
		c.Op = op
		return nil
	}
	return number(w, &c.Count)
}

func (c *Case) assign(name, value string) error {
	switch name {
	case "algorithm":
		c.Algorithm = value
		return nil
	case "root":
		if !c.Collective.Rooted() {
			return fmt.Errorf("%s has no root", c.Collective)
		}
		return number(value, &c.Root)
	case "offset":
		return number(value, &c.Offset)
	}
	return fmt.Errorf("%q: expected root, offset or algorithm", name)
}

func number(text string, to *int) error {
	n, err := strconv.Atoi(text)
	if errors.Is(err, strconv.ErrRange) {
		return fmt.Errorf("%q is out of range: expected a number from 0 on that fits 64 bits", text)
	}
	if err != nil || n < 0 {
		return fmt.Errorf("%q: expected a type, a reduction, a count, in-place, registered, root=, offset= or algorithm=", text)
	}
	*to = n
	return nil
}

// bytes is the room that the case needs in a buffer, offset included.
func (c Case) bytes(ranks int) int64 {
	return (bench.Larger(c.Collective, c.Count, ranks) + int64(c.Offset)) * int64(c.Type.Size())
}

// call is the case as one rank makes it, without buffers.
func (c Case) call(rank, ranks int) *bench.Call {
	call := &bench.Call{Collective: c.Collective, Type: c.Type, Op: c.Op, Count: c.Count, Root: c.Root, Algorithm: c.Algorithm, Scale: 0.5}
	if c.Type >= kernel.Int8 && c.Type <= kernel.Uint64 {
		call.Scale = 3 // half of an integer is none
	}
	if c.Collective == bench.AllToAllV {
		call.V = bench.UnevenBlocks(c.Count, ranks, rank)
	}
	return call
}
