package bootstrap

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// The test binary is also the rank processes that the tests start.
func TestMain(m *testing.M) {
	if mode := os.Getenv(childMode); mode != "" {
		os.Exit(child(mode))
	}
	goleak.VerifyTestMain(m)
}
