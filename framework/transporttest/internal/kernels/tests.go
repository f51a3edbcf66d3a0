// Package kernels holds the tests that use channels from kernels, by the device headers.
package kernels

import (
	"github.com/mscclpp-go/mscclpp/framework/transporttest/internal/harness"
)

// Tests lists the tests of this package in the order in which they run.
func Tests() []harness.Test { return kernelTests }
