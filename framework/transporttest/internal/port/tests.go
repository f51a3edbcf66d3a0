// Package port holds the tests of port channels: rings, triggers, proxies, streams, and
// channels that the rank drives itself.
package port

import (
	"slices"

	"github.com/mscclpp-go/mscclpp/framework/transporttest/internal/harness"
)

// Tests lists the tests of this package in the order in which they run.
func Tests() []harness.Test {
	return slices.Concat(portTests, portControlTests, streamTests, drivenTests, drivenKernelTests)
}
