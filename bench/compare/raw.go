package compare

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/mscclpp-go/mscclpp/bench/report"
)

// Table is the content of one file of raw output: in every repetition, for each turn, its points
// as our side measured them, and then as the other side did.
type Table struct {
	Name  string
	Turns [][]Key
	Sound func(theirs Times) error // may refuse what the other side measured; nil: accepts all
}

// Point identifies the measurement of one line of raw output.
type Point struct {
	Key
	Theirs bool
}

func (p Point) String() string {
	return fmt.Sprintf("%s of %d bytes, %s", p.Collective, p.Bytes, map[bool]string{false: "ours", true: "theirs"}[p.Theirs])
}

func points(keys []Key, theirs bool) (all []Point) {
	for _, k := range keys {
		all = append(all, Point{k, theirs})
	}
	return all
}

// foreign are the transports of programs that are not ours.
var foreign = []string{"c", "mpi"}

// sides has the times of both.
type sides struct{ ours, theirs Times }

// add reads results for the given points. A wrong result is an error: a time for it means
// nothing.
func (s sides) add(name string, output []byte, want []Point) error {
	return Lines(name, output, want, func(row report.Row) (Point, error) {
		p := Point{Key{row.Collective, row.Bytes}, slices.Contains(foreign, row.Transport)}
		if row.Errors == nil || *row.Errors != 0 {
			return p, fmt.Errorf("the result was wrong, or not checked: expected 0 errors")
		}
		if !(row.TimeUS > 0) {
			return p, fmt.Errorf("a time of %v µs: expected more than 0", row.TimeUS)
		}
		times := s.ours
		if p.Theirs {
			times = s.theirs
		}
		times[p.Key] = append(times[p.Key], row.TimeUS)
		return p, nil
	})
}

// Lines reads JSON lines, which are about the given points, in this order. take says what
// a line is about. Errors have the number of the line, and what was expected there.
func Lines[T any, P interface {
	comparable
	fmt.Stringer
}](name string, text []byte, want []P, take func(T) (P, error)) error {
	n, taken := 0, 0
	for line := range bytes.Lines(text) {
		n++
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		if taken == len(want) {
			return fmt.Errorf("%s:%d: %.200q: expected the end after %d results", name, n, line, len(want))
		}
		var row T
		if err := strict(line, &row); err != nil {
			return fmt.Errorf("%s:%d: %.200q: expected a JSON object, %s: %w", name, n, line, want[taken], err)
		}
		got, err := take(row)
		if got != want[taken] {
			return fmt.Errorf("%s:%d: %s: expected %s", name, n, got, want[taken])
		}
		if err != nil {
			return fmt.Errorf("%s:%d: %s: %w", name, n, got, err)
		}
		taken++
	}
	if taken < len(want) {
		return fmt.Errorf("%s:%d: the end, after %d of %d results: expected %s", name, n+1, taken, len(want), want[taken])
	}
	return nil
}

// strict decodes one JSON object without unknown fields.
func strict(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if rest := bytes.TrimSpace(text[d.InputOffset():]); len(rest) > 0 {
		return fmt.Errorf("%.20q after the object", rest)
	}
	return nil
}

// Raw returns the raw output NAME.jsonl, and its path for errors.
func (r *Runner) Raw(name string) (path string, text []byte, err error) {
	path = filepath.Join(r.Out, name+".jsonl")
	if text, err = os.ReadFile(path); err != nil {
		err = fmt.Errorf("%w: expected the raw output of what machine.json lists", err)
	}
	return path, text, err
}

// Read compares the two sides by a table's raw output of so many repetitions.
func (r *Runner) Read(t Table, repetitions int) ([]Line, error) {
	path, text, err := r.Raw(t.Name)
	if err != nil {
		return nil, err
	}
	var once []Point
	for _, keys := range t.Turns {
		once = append(append(once, points(keys, false)...), points(keys, true)...)
	}
	s := sides{Times{}, Times{}}
	if err := s.add(path, text, slices.Repeat(once, repetitions)); err != nil {
		return nil, err
	}
	if t.Sound != nil {
		if err := t.Sound(s.theirs); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	var lines []Line
	for _, k := range slices.Concat(t.Turns...) {
		l, err := Pair(k, s.ours[k], s.theirs[k])
		if err != nil {
			return nil, err
		}
		lines = append(lines, l)
	}
	return lines, nil
}
