// Package control holds the tests of the calls themselves: claims, ids, parcels and
// the ownership of descriptors.
package control

import (
	"slices"

	"github.com/mscclpp-go/mscclpp/framework/transporttest/internal/harness"
)

// Tests lists the tests of this package in the order in which they run.
func Tests() []harness.Test {
	return slices.Concat(controlTests, parcelTests, ownershipTests)
}
