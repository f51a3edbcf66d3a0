package config

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/mscclpp-go/mscclpp/internal/onfirstuse"
)

// Duration is a time.Duration that is written as "1.5s" in every layer.
type Duration time.Duration

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// String returns the form that UnmarshalText accepts.
func (d Duration) String() string { return time.Duration(d).String() }

// UnmarshalText implements encoding.TextUnmarshaler. Negative values are refused:
// no key has a use for them.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil && longDuration().Match(text) {
		return fmt.Errorf("%q is too large: expected at most %v", text, time.Duration(math.MaxInt64).Truncate(time.Hour))
	}
	if err != nil || v < 0 {
		return fmt.Errorf("%q: expected a duration with its unit, such as 500ms, 30s or 2m", text)
	}
	*d = Duration(v)
	return nil
}

// longDuration matches a duration that is right in form, so that only its size can be wrong.
var longDuration = onfirstuse.Regexp(`^\+?([0-9]+(\.[0-9]*)?(ns|us|µs|ms|s|m|h))+$`)

// Bytes is a number of bytes, written as a plain number or with a binary unit:
// 4096, 64K, 32MiB, 1G.
type Bytes uint64

// units are powers of 1024, as everywhere in this field.
var units = []struct {
	suffix string
	shift  uint
}{{"TiB", 40}, {"GiB", 30}, {"MiB", 20}, {"KiB", 10}, {"T", 40}, {"G", 30}, {"M", 20}, {"K", 10}, {"B", 0}}

// MarshalText implements encoding.TextMarshaler.
func (b Bytes) MarshalText() ([]byte, error) { return []byte(b.String()), nil }

// String returns the value with the largest unit that divides it.
func (b Bytes) String() string {
	for _, u := range units[:4] {
		if b != 0 && b%(1<<u.shift) == 0 {
			return strconv.FormatUint(uint64(b)>>u.shift, 10) + u.suffix
		}
	}
	return strconv.FormatUint(uint64(b), 10)
}

// UnmarshalText implements encoding.TextUnmarshaler. It refuses what does not fit
// 64 bits instead of wrapping around.
func (b *Bytes) UnmarshalText(text []byte) error {
	number, shift := strings.TrimSpace(string(text)), uint(0)
	for _, u := range units {
		if rest, ok := strings.CutSuffix(number, u.suffix); ok {
			number, shift = strings.TrimSpace(rest), u.shift
			break
		}
	}
	n, err := strconv.ParseUint(number, 10, 64)
	if errors.Is(err, strconv.ErrRange) || err == nil && n > math.MaxUint64>>shift {
		return fmt.Errorf("%q is too large: expected a number of bytes below 2^64", text)
	}
	if err != nil {
		return fmt.Errorf("%q: expected a number of bytes, such as 4096, 64K or 32MiB", text)
	}
	*b = Bytes(n << shift)
	return nil
}
