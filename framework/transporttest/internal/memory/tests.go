// Package memory holds the tests of memory and switch channels: what is stored through
// the mappings of a recipe arrives where it should.
package memory

import (
	"slices"

	"github.com/mscclpp-go/mscclpp/framework/transporttest/internal/harness"
)

// Tests lists the tests of this package in the order in which they run.
func Tests() []harness.Test {
	return slices.Concat(memoryTests, deviceTests, switchTests)
}
