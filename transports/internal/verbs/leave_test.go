package verbs

import (
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/transports/internal/verbs/verbstest"
)

// A rank leaves long after its peer, on adapters that are not there.
func TestLeaveOneByOne(t *testing.T) {
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			library := fake(t)
			verbstest.Suite{New: func() (framework.Transport, error) { return transportOn(t, library, mode), nil }}.OneByOne(t)
		})
	}
}
