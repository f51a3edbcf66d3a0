package cuda

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
)

// Numbers are written out: the driver's answers are part of its binary interface.
func TestClassesOfAnswers(t *testing.T) {
	for _, c := range []struct {
		code int
		want error
		lost bool
	}{
		{1, framework.ErrInvalid, false},
		{2, framework.ErrUnavailable, false}, // out of memory
		{4, framework.ErrClosed, false},      // deinitialized
		{34, framework.ErrUnavailable, false},
		{100, framework.ErrUnavailable, false}, // no device
		{101, framework.ErrInvalid, false},
		{200, framework.ErrInvalid, false}, // image
		{209, framework.ErrInvalid, false}, // image for other devices
		{214, framework.ErrUnavailable, true},
		{217, framework.ErrUnsupported, false}, // peer access
		{218, framework.ErrInvalid, false},     // PTX
		{222, framework.ErrUnavailable, false}, // PTX newer than the driver
		{500, framework.ErrInvalid, false},
		{700, framework.ErrUnavailable, true}, // illegal address
		{709, framework.ErrClosed, false},
		{715, framework.ErrUnavailable, true},
		{719, framework.ErrUnavailable, true},
		{800, framework.ErrUnavailable, false}, // not permitted
		{801, framework.ErrUnsupported, false},
		{803, framework.ErrUnavailable, false},
		{901, framework.ErrInvalid, false}, // capture
		{999, framework.ErrUnavailable, true},
	} {
		e := &Error{Code: c.code}
		if got := framework.Class(e); got != c.want || e.Lost() != c.lost {
			t.Errorf("%d: %v, lost %v: expected %v, %v", c.code, got, e.Lost(), c.want, c.lost)
		}
	}
}

func TestErrorText(t *testing.T) {
	e := &Error{
		Op: "sync", Device: framework.Device{Type: "cuda", Index: 3}, Call: "cuStreamSynchronize",
		Code: 700, Name: "CUDA_ERROR_ILLEGAL_ADDRESS", Text: "an illegal memory access was encountered",
	}
	for _, want := range []string{"cuda:3 sync", "unavailable", "cuStreamSynchronize answers CUDA_ERROR_ILLEGAL_ADDRESS (an illegal", "started again"} {
		if !strings.Contains(e.Error(), want) {
			t.Errorf("%q does not say %q", e, want)
		}
	}
	e = &Error{Op: "initialize", Device: framework.Device{Type: "cuda", Index: noDevice}, Call: "cuInit", Code: 12345, Log: "line 1\n"}
	if got := e.Error(); got != "cuda initialize: invalid: cuInit answers 12345: line 1" {
		t.Errorf("%q", got)
	}
	var found *Error
	if !errors.As(fmt.Errorf("outer: %w", e), &found) || found.Code != 12345 {
		t.Error("lost under wrapping")
	}
}

// The meaning of an answer for memory of others depends on the step that got it.
func TestImportsAreExplained(t *testing.T) {
	const whole, access = "mapped whole", "may address the memory of the other"
	for _, c := range []struct {
		call   string
		code   int
		wanted string
	}{
		{"cuMemMap", 801, whole},
		{"cuMemImportFromShareableHandle", 801, ""}, // a kind of handle
		{"cuMemSetAccess", 217, access},
		{"cuMemSetAccess", 101, access},
		{"cuMemAddressReserve", 2, ""},
	} {
		got := explained(&Error{Op: "import", Call: c.call, Code: c.code}, 4096).Error()
		for _, text := range []string{whole, access} {
			if strings.Contains(got, text) != (text == c.wanted) {
				t.Errorf("%s answers %d: %q: expected of the explanations %q", c.call, c.code, got, c.wanted)
			}
		}
	}
}

// The driver's error for no device is the same on a machine without GPUs and in an
// environment that hides them. The driver reads that once: each case has a process of its own.
func TestHiddenDevices(t *testing.T) {
	open(t, 0)
	for _, list := range []string{"", "-1", "GPU-of-another-machine"} {
		t.Setenv(envVisible, list)
		if out, err := start(t, "hidden", nil, nil); err != nil {
			t.Errorf("%q: %v: %s", list, err, out)
		}
	}
}

func hiddenRole() error {
	_, err := Open(0)
	return expect(err, framework.ErrUnavailable, fmt.Sprintf("CUDA_VISIBLE_DEVICES=%q leaves none: expected", os.Getenv(envVisible)))
}

func TestJoinedReasonsAreOneLine(t *testing.T) {
	err := join([]error{fmt.Errorf("a: %w", framework.ErrUnavailable), fmt.Errorf("b\nc: %w", framework.ErrUnsupported)})
	if !errors.Is(err, framework.ErrUnavailable) || !errors.Is(err, framework.ErrUnsupported) || err.Error() != "a: unavailable; b; c: unsupported" {
		t.Errorf("%q: expected both classes on one line", err)
	}
	if one := errors.New("one"); join([]error{one}) != one {
		t.Error("a single reason is changed")
	}
	if errorsFirst(nil, framework.ErrClosed, framework.ErrInvalid) != framework.ErrClosed || errorsFirst(nil, nil) != nil {
		t.Error("not the first error")
	}
}

func TestRanges(t *testing.T) {
	for _, c := range []struct {
		offset, bytes, size uint64
		ok                  bool
	}{
		{0, 1, 1, true}, {5, 5, 10, true}, {0, 0, 1, false}, {5, 6, 10, false}, {11, 1, 10, false}, {^uint64(0), 2, 10, false}, {1, ^uint64(0), 10, false},
	} {
		if err := within(c.offset, c.bytes, c.size); (err == nil) != c.ok || err != nil && !errors.Is(err, framework.ErrInvalid) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
