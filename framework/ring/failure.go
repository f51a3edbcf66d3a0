package ring

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/mscclpp-go/mscclpp/framework"
)

// Fail ends the ring: pushes fail, and so do all waits for room and for flushes. The
// first reason is kept. The error word holds only the class of err; the proxy's Wait
// returns the text. A nil err is an orderly end, ErrClosed.
func (r *Ring) Fail(err error) {
	atomic.CompareAndSwapUint32(&r.header.Error, 0, Code(err))
	r.Wake()
}

// Err returns why the ring ended, nil while it has not.
func (r *Ring) Err() error {
	code := atomic.LoadUint32(&r.header.Error)
	if code == 0 {
		return nil
	}
	return fmt.Errorf("the proxy has ended: %w", Class(code))
}

// Code returns the value of the error word for an error: the number of its class
// in framework.Classes, from 1.
func Code(err error) uint32 {
	class := framework.Class(err)
	if err == nil {
		class = framework.ErrClosed
	}
	for i, c := range framework.Classes {
		if errors.Is(class, c) {
			return uint32(i) + 1
		}
	}
	return Code(framework.ErrPlugin) // a proxy that dies without a class is a broken one
}

// Class is the inverse of Code.
func Class(code uint32) error {
	if code == 0 || int(code) > len(framework.Classes) {
		return framework.ErrPlugin
	}
	return framework.Classes[code-1]
}
