package bootstrap

import (
	"os"
	"testing"

	"github.com/mscclpp-go/mscclpp/internal/leaktest"
)

// The test binary is also the rank processes that the tests start.
func TestMain(m *testing.M) {
	handshakeTimeout, askTimeout = patience, patience
	if mode := os.Getenv(childMode); mode != "" {
		os.Exit(child(mode))
	}
	leaktest.Main(m)
}
