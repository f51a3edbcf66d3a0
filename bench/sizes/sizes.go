// Package sizes reads and prints byte counts as people type them to benchmark
// programs: 8, 1K, 16M, 1G, in powers of 1024.
package sizes

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

var units = []struct {
	letter string
	shift  uint
}{{"T", 40}, {"G", 30}, {"M", 20}, {"K", 10}}

// Parse reads one size. The suffixes K M G T, in either case and with an optional
// "iB" or "B" behind, are powers of 1024.
func Parse(text string) (int64, error) {
	s := strings.ToUpper(strings.TrimSpace(text))
	s = strings.TrimSuffix(strings.TrimSuffix(s, "B"), "I")
	shift := uint(0)
	for _, u := range units {
		if rest, ok := strings.CutSuffix(s, u.letter); ok {
			s, shift = rest, u.shift
			break
		}
	}
	if strings.HasSuffix(strings.ToUpper(text), "I") || shift == 0 && strings.Contains(strings.ToUpper(text), "I") {
		return 0, invalid(text)
	}
	n, err := strconv.ParseInt(s, 10, 64)
	large := errors.Is(err, strconv.ErrRange) && n > 0 || err == nil && n > math.MaxInt64>>shift
	switch {
	case err != nil && !large || n < 0 || s[0] == '+':
		return 0, invalid(text)
	case large:
		return 0, fmt.Errorf("size %q is too large: expected less than 2^63 bytes", text)
	}
	return n << shift, nil
}

func invalid(text string) error {
	return fmt.Errorf("size %q: expected a whole number with an optional K, M, G or T, such as 64K", text)
}

// Format prints the shortest exact form: 1K, 1536, 3M.
func Format(n int64) string {
	if n != 0 {
		for _, u := range units {
			if n%(1<<u.shift) == 0 {
				return strconv.FormatInt(n>>u.shift, 10) + u.letter
			}
		}
	}
	return strconv.FormatInt(n, 10)
}

// Range is a sweep from Min to Max, each size Factor times the one before.
type Range struct {
	Min, Max, Factor int64
}

// ParseRange reads "MIN:MAX", or one size.
func ParseRange(text string, factor int64) (Range, error) {
	low, high, sweep := strings.Cut(text, ":")
	if !sweep {
		high = low
	}
	r := Range{Factor: factor}
	var err error
	if r.Min, err = Parse(low); err != nil {
		return Range{}, err
	}
	if r.Max, err = Parse(high); err != nil {
		return Range{}, err
	}
	switch {
	case r.Min > r.Max:
		return Range{}, fmt.Errorf("sizes %q: the first is larger than the second", text)
	case r.Min == 0 && r.Max != 0:
		return Range{}, fmt.Errorf("sizes %q: a sweep starts above 0, because its steps multiply", text)
	case factor < 2:
		return Range{}, fmt.Errorf("factor %d: expected 2 or more", factor)
	}
	return r, nil
}

// ParseList reads sizes and ranges with commas between them, in the order in which they
// are written.
func ParseList(text string, factor int64) ([]int64, error) {
	var all []int64
	for part := range strings.SplitSeq(text, ",") {
		r, err := ParseRange(part, factor)
		if err != nil {
			return nil, err
		}
		all = append(all, r.List()...)
	}
	return all, nil
}

// List returns the sizes of the sweep. Max itself is there only if the steps reach
// it, as with nccl-tests.
func (r Range) List() []int64 {
	var all []int64
	for n := r.Min; n <= r.Max; n *= r.Factor {
		all = append(all, n)
		if n == 0 || n > math.MaxInt64/r.Factor {
			break
		}
	}
	return all
}
