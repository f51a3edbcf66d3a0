package cuda

// #include "shim.h"
import "C"

import (
	"strconv"
	"strings"

	"github.com/mscclpp-go/mscclpp/framework"
)

// Error is a refusal of the driver. It wraps one of the framework's classes.
type Error struct {
	Op     string           // the operation: "alloc", "launch allreduce"
	Device framework.Device // Index is -1 if none is concerned
	Call   string           // function of the driver
	Code   int              // its answer
	Name   string           // of the answer: "CUDA_ERROR_OUT_OF_MEMORY"
	Text   string           // the driver's words for it
	Log    string           // of the compiler, if an image was refused
}

// noDevice is the index in errors that concern no device in particular.
const noDevice = -1

// Error implements error.
func (e *Error) Error() string {
	var b strings.Builder
	if e.Device.Index == noDevice {
		b.WriteString("cuda")
	} else {
		b.WriteString(e.Device.String())
	}
	b.WriteString(" " + e.Op + ": " + e.Unwrap().Error() + ": " + e.Call + " answers ")
	if e.Name == "" {
		b.WriteString(strconv.Itoa(e.Code))
	} else {
		b.WriteString(e.Name)
	}
	if e.Text != "" {
		b.WriteString(" (" + e.Text + ")")
	}
	if e.Lost() {
		b.WriteString("; the device is lost to this process, which has to be started again")
	}
	if e.Log != "" {
		b.WriteString(": " + strings.TrimSpace(e.Log))
	}
	return b.String()
}

// Unwrap returns the class of the error.
func (e *Error) Unwrap() error { return classOf(e.Code) }

// Lost reports whether all further use of the device by this process will fail
// with the same answer: a kernel went astray, or the hardware failed.
func (e *Error) Lost() bool {
	switch e.Code {
	case C.CUDA_ERROR_ECC_UNCORRECTABLE, C.CUDA_ERROR_NVLINK_UNCORRECTABLE, C.CUDA_ERROR_CONTAINED,
		C.CUDA_ERROR_ILLEGAL_ADDRESS, C.CUDA_ERROR_LAUNCH_TIMEOUT, C.CUDA_ERROR_ASSERT,
		C.CUDA_ERROR_HARDWARE_STACK_ERROR, C.CUDA_ERROR_ILLEGAL_INSTRUCTION, C.CUDA_ERROR_MISALIGNED_ADDRESS,
		C.CUDA_ERROR_INVALID_ADDRESS_SPACE, C.CUDA_ERROR_INVALID_PC, C.CUDA_ERROR_LAUNCH_FAILED,
		C.CUDA_ERROR_UNKNOWN:
		return true
	}
	return false
}

// classOf sorts the driver's answers into the framework's classes.
func classOf(code int) error {
	switch code {
	case C.CUDA_ERROR_DEINITIALIZED, C.CUDA_ERROR_CONTEXT_IS_DESTROYED:
		return framework.ErrClosed
	case C.CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, C.CUDA_ERROR_NOT_SUPPORTED:
		return framework.ErrUnsupported
	case C.CUDA_ERROR_OUT_OF_MEMORY, C.CUDA_ERROR_NOT_INITIALIZED, C.CUDA_ERROR_STUB_LIBRARY,
		C.CUDA_ERROR_DEVICE_UNAVAILABLE, C.CUDA_ERROR_NO_DEVICE, C.CUDA_ERROR_JIT_COMPILER_NOT_FOUND,
		C.CUDA_ERROR_UNSUPPORTED_PTX_VERSION, C.CUDA_ERROR_JIT_COMPILATION_DISABLED,
		C.CUDA_ERROR_OPERATING_SYSTEM, C.CUDA_ERROR_NOT_READY, C.CUDA_ERROR_NOT_PERMITTED,
		C.CUDA_ERROR_SYSTEM_NOT_READY, C.CUDA_ERROR_SYSTEM_DRIVER_MISMATCH,
		C.CUDA_ERROR_MPS_CONNECTION_FAILED, C.CUDA_ERROR_MPS_RPC_FAILURE, C.CUDA_ERROR_MPS_SERVER_NOT_READY,
		C.CUDA_ERROR_MPS_MAX_CLIENTS_REACHED, C.CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED:
		return framework.ErrUnavailable
	}
	if (&Error{Code: code}).Lost() {
		return framework.ErrUnavailable
	}
	return framework.ErrInvalid // the driver was asked for what makes no sense to it
}

// check turns the outcome of a portion into an error.
func (d *driver) check(op string, index int, st C.cuda_status) error {
	if st.code == C.CUDA_SUCCESS {
		return nil
	}
	return d.fail(op, index, C.GoString(st.call), int(st.code))
}

// fail makes the error of an answer that is not success.
func (d *driver) fail(op string, index int, call string, code int) *Error {
	var name, text [256]C.char
	C.cuda_describe(d.api, C.int(code), &name[0], &text[0], C.size_t(len(name)))
	return &Error{
		Op: op, Device: framework.Device{Type: deviceType, Index: index}, Call: call, Code: code,
		Name: C.GoString(&name[0]), Text: C.GoString(&text[0]),
	}
}

// refused reports whether the driver cannot do, or is not allowed to do, what was
// asked, so that another way is worth a try.
func refused(st C.cuda_status) bool {
	return st.code == C.CUDA_ERROR_NOT_SUPPORTED || st.code == C.CUDA_ERROR_NOT_PERMITTED ||
		st.code == C.CUDA_ERROR_INVALID_VALUE || st.code == C.CUDA_ERROR_INVALID_DEVICE
}

const deviceType = "cuda"
