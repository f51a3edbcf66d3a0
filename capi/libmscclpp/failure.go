package main

// #cgo CFLAGS: -std=c11 -D_GNU_SOURCE -Wall -Wextra
// #include "internal.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"unsafe"

	_ "github.com/mscclpp-go/mscclpp/capi" // is built again when the header or the list of exports changes
	"github.com/mscclpp-go/mscclpp/framework"
)

// fail records an error for the calling thread, and returns its code. nil is success.
func fail(f *C.struct_failure, err error) C.int32_t {
	if err == nil {
		return C.MSCCLPP_SUCCESS
	}
	text := unsafe.Slice((*byte)(unsafe.Pointer(&f.text[0])), len(f.text))
	n := copy(text[:len(text)-1], err.Error())
	text[n] = 0
	f.rank = C.int32_t(framework.PeerOf(err))
	return code(err)
}

// code is the C code of an error. The classes have the order of their wire codes.
func code(err error) C.int32_t {
	if errors.Is(err, context.DeadlineExceeded) {
		return C.MSCCLPP_TIMEOUT // also where the error names the rank that did not answer
	}
	for i, class := range framework.Classes {
		if errors.Is(err, class) {
			return C.int32_t(i + 1)
		}
	}
	if errors.Is(err, context.Canceled) {
		return C.MSCCLPP_CLOSED
	}
	return C.MSCCLPP_FAILED
}

// recovered turns a panic into the code of an exported function.
func recovered(f *C.struct_failure, result *C.int32_t) {
	p := recover()
	if p == nil {
		return
	}
	stack := string(debug.Stack())
	if _, after, ok := strings.Cut(stack, "panic("); ok { // the recovery is above
		stack = "panic(" + after
	}
	*result = fail(f, fmt.Errorf("defect of this library: %v\n%s", p, stack))
}
