package strict

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
)

// number sets an integer or a floating-point number.
func (d Decoder) number(to reflect.Value, raw any, key string) error {
	s, ok := d.digits(raw)
	if to.CanFloat() {
		n, err := strconv.ParseFloat(s, to.Type().Bits())
		switch {
		case !ok || err != nil && !errors.Is(err, strconv.ErrRange):
			return wrong(key, "a number", raw)
		case err != nil:
			return &Error{Key: key, Reason: s + " is too large: expected a number of " + to.Type().String()}
		}
		to.SetFloat(n)
		return nil
	}
	bits := to.Type().Bits()
	if v, isFloat := raw.(float64); isFloat {
		// YAML makes a floating-point number of a whole one that does not fit 64 bits.
		if ok = math.Abs(v) >= 1<<63; ok {
			s = strconv.FormatFloat(v, 'f', 0, 64)
		}
	}
	negative := strings.HasPrefix(s, "-")
	var err error
	if to.CanInt() {
		var n int64
		if n, err = strconv.ParseInt(s, base(s), bits); ok && err == nil && (!negative || !d.Natural) {
			to.SetInt(n)
			return nil
		}
	} else {
		var n uint64
		if n, err = strconv.ParseUint(strings.TrimPrefix(s, "-"), base(s), bits); ok && err == nil && !negative {
			to.SetUint(n)
			return nil
		}
	}
	switch {
	case !ok || err != nil && !errors.Is(err, strconv.ErrRange):
		return wrong(key, "a whole number", raw)
	case negative && (to.CanUint() || d.Natural):
		return wrong(key, "a number that is not negative", raw)
	case negative:
		return &Error{Key: key, Reason: fmt.Sprintf("%s is too small: expected a whole number of at least %d", s, math.MinInt64>>(64-bits))}
	}
	most := uint64(math.MaxUint64) >> (64 - bits)
	if to.CanInt() {
		most >>= 1
	}
	return &Error{Key: key, Reason: fmt.Sprintf("%s is too large: expected a whole number of at most %d", s, most)}
}

// digits returns the text of a number; false for what is none.
func (d Decoder) digits(raw any) (string, bool) {
	switch raw.(type) {
	case string:
		if !d.Text {
			return "", false
		}
	case json.Number, int, int64, uint64, float64:
	default:
		return "", false
	}
	return Text(raw)
}

// base lets numbers begin with 0x, 0o and 0b; a zero alone means nothing.
func base(s string) int {
	s = strings.ToLower(strings.TrimLeft(s, "+-"))
	if len(s) > 1 && s[0] == '0' && strings.ContainsRune("xob", rune(s[1])) {
		return 0
	}
	return 10
}
