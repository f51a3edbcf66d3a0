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
	open(t, 0)
	back, err := Backend()
	check(t, err)
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
		e := back.Refusal("test", 0, "cuTest", c.code)
		if got := framework.Class(e); got != c.want || e.Lost() != c.lost {
			t.Errorf("%d: %v, lost %v: expected %v, %v", c.code, got, e.Lost(), c.want, c.lost)
		}
	}
}

func TestErrorText(t *testing.T) {
	open(t, 0)
	back, err := Backend()
	check(t, err)
	e := back.Refusal("sync", 3, "cuStreamSynchronize", 700)
	for _, want := range []string{"cuda:3 sync", "unavailable", "cuStreamSynchronize answers CUDA_ERROR_ILLEGAL_ADDRESS (an illegal", "started again"} {
		if !strings.Contains(e.Error(), want) {
			t.Errorf("%q does not say %q", e, want)
		}
	}
	e = back.Refusal("initialize", -1, "cuInit", 12345)
	e.Log = "line 1\n"
	if got := e.Error(); !strings.HasPrefix(got, "cuda initialize: invalid: cuInit answers ") || !strings.HasSuffix(got, ": line 1") {
		t.Errorf("%q", got)
	}
	var found *Error
	if !errors.As(fmt.Errorf("outer: %w", e), &found) || found.Code != 12345 {
		t.Error("lost under wrapping")
	}
}

// Every word of the table has a class and a text, and takes the driver's answer with it.
func TestWordsOfTheTable(t *testing.T) {
	open(t, 0)
	back, err := Backend()
	check(t, err)
	for code, want := range map[int]string{
		wordWhole + 801: "cuda:0 import: unsupported: cuMemMap answers CUDA_ERROR_NOT_SUPPORTED (", wordAccess + 101: "invalid: cuMemMap answers CUDA_ERROR_INVALID_DEVICE (",
		wordAccess + 217: "unsupported: ", wordImage + 209: "invalid: ", wordGDRCopy + 1: "unavailable: cuMemMap answers Operation not permitted",
	} {
		if got := back.Refusal("import", 0, "cuMemMap", code).Error(); !strings.Contains(got, want) {
			t.Errorf("%d: %q: expected %q", code, got, want)
		}
	}
	for code := wordWhole; code < wordEnd; code += wordWhole {
		e := back.Refusal("test", 0, "", code)
		if got := e.Error(); framework.Class(e) == nil || strings.Contains(got, "code ") || e.Lost() {
			t.Errorf("word %d: %q, lost %v", code/wordWhole, got, e.Lost())
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
