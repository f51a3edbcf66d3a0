package native

// #include "table.h"
import "C"

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
)

// Error is a refusal of a back end. It wraps one of the framework's classes.
type Error struct {
	Op     string           // the operation: "alloc 4096 bytes"
	Device framework.Device // Index is -1 if none is concerned
	Call   string           // the function that failed, as the maker names it; may be empty
	Code   int              // below 0: of mscclpp/device_backend.h; above: the maker's
	Name   string           // of the code
	Text   string           // the maker's words for it
	Log    string           // of the compiler, if an image was refused

	class error
	lost  bool
}

const noDevice = -1

// Error implements error.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Device.Type)
	if e.Device.Index != noDevice {
		b.WriteString(":" + strconv.Itoa(e.Device.Index))
	}
	b.WriteString(" " + e.Op + ": " + e.Unwrap().Error() + ": " + e.answer())
	if e.lost {
		b.WriteString("; the device is lost to this process, which has to be started again")
	}
	if e.Log != "" {
		b.WriteString(": " + strings.TrimSpace(e.Log))
	}
	return b.String()
}

// answer is what the back end said.
func (e *Error) answer() string {
	name, text, call := e.Name, "", ""
	switch {
	case name != "":
	case e.Call == "" && e.Text != "":
		return e.Text
	default:
		name = "code " + strconv.Itoa(e.Code)
	}
	if e.Call != "" {
		call = e.Call + " answers "
	}
	if e.Text != "" {
		text = " (" + e.Text + ")"
	}
	return call + name + text
}

// Unwrap returns the class of the error.
func (e *Error) Unwrap() error {
	if e.class == nil {
		return framework.ErrInvalid
	}
	return e.class
}

// Lost reports whether all further use of the device by this process will fail.
func (e *Error) Lost() bool { return e.lost }

// common are the codes that are the same for all back ends.
var common = map[int]Error{
	C.MSCCLPP_DEVICE_NOT_READY:   {Name: "not ready", class: framework.ErrUnavailable},
	C.MSCCLPP_DEVICE_CAPTURING:   {Name: "capturing", Text: "the stream records a graph", class: framework.ErrInvalid},
	C.MSCCLPP_DEVICE_NOT_FOUND:   {Name: "not found", class: framework.ErrInvalid},
	C.MSCCLPP_DEVICE_UNSUPPORTED: {Name: "unsupported", class: framework.ErrUnsupported},
	C.MSCCLPP_DEVICE_NO_MEMORY:   {Name: "no memory", class: framework.ErrUnavailable},
	C.MSCCLPP_DEVICE_INVALID:     {Name: "invalid", class: framework.ErrInvalid},
	C.MSCCLPP_DEVICE_UNAVAILABLE: {Name: "unavailable", class: framework.ErrUnavailable},
	C.MSCCLPP_DEVICE_LOST:        {Name: "lost", class: framework.ErrUnavailable, lost: true},
}

// Classes of failures that another try may not meet: a later one, or one for less.
var (
	errLater = fmt.Errorf("%w: %w", framework.ErrUnavailable, device.ErrNotReady)
	errFull  = fmt.Errorf("%w: %w", framework.ErrUnavailable, device.ErrFull)
)

// classes are those of the table.
var classes = map[C.int32_t]error{
	C.MSCCLPP_DEVICE_CLASS_UNSUPPORTED: framework.ErrUnsupported,
	C.MSCCLPP_DEVICE_CLASS_UNAVAILABLE: framework.ErrUnavailable,
	C.MSCCLPP_DEVICE_CLASS_CLOSED:      framework.ErrClosed,
	C.MSCCLPP_DEVICE_CLASS_LATER:       errLater,
	C.MSCCLPP_DEVICE_CLASS_FULL:        errFull,
}

// check turns the outcome of a call into an error.
func (b *Backend) check(op string, index int, st C.native_status) error {
	if st.code == C.MSCCLPP_DEVICE_OK {
		return nil
	}
	return b.fail(op, index, st)
}

// Refusal makes the error of a code, for packages that bring the table and call functions of their own. index is -1 if no
// device is concerned.
func (b *Backend) Refusal(op string, index int, call string, code int) *Error {
	e := b.fail(op, index, C.native_status{code: C.int32_t(code)})
	e.Call = call
	return e
}

// fail makes the error of an outcome that is no success.
func (b *Backend) fail(op string, index int, st C.native_status) *Error {
	e := &Error{}
	if words, known := common[int(st.code)]; known {
		*e = words
	} else {
		words := C.mscclpp_device_error{size: C.sizeof_mscclpp_device_error}
		C.native_describe(b.t, st.code, &words)
		e.Name, e.Text = text(words.name[:]), text(words.text[:])
		if e.class = classes[words.error_class]; e.class == nil {
			e.class = framework.ErrInvalid
		}
		e.lost = words.lost != 0
	}
	e.Op, e.Device, e.Code = op, framework.Device{Type: b.typ, Index: index}, int(st.code)
	if st.call != nil {
		e.Call = C.GoString(st.call)
	}
	return e
}

// text reads a string that need not end.
func text(field []C.char) string {
	var b strings.Builder
	for _, c := range field {
		if c == 0 {
			break
		}
		b.WriteByte(byte(c))
	}
	return strings.ToValidUTF8(b.String(), "?")
}
