// Package failure holds the tests in which peers leave and plugins are killed.
package failure

import (
	"github.com/mscclpp-go/mscclpp/framework/transporttest/internal/harness"
)

// Tests lists the tests of this package in the order in which they run.
func Tests() []harness.Test { return failureTests }
