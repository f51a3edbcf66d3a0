package control

import (
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/transporttest/internal/harness"
)

// testOtherMemory offers memory that is not what the transport needs, and a device
// that it does not serve.
func testOtherMemory(t *harness.T) {
	r := t.Rank(0)
	reg, err := r.Register(t.Context(), r.Alloc(4096).Segment)
	class := framework.ErrUnsupported
	if t.Claims.Memory.Absent {
		class = framework.ErrUnavailable
	}
	t.WantClass("register memory that is not what the description asks for, or without a device", err, class)
	if err == nil {
		_ = reg.Key.Close()
		r.Release(reg.ID)
	}
	for _, kind := range t.Claims.Channels {
		end, err := r.Listen(t.Context(), r.LinkConfig(kind))
		t.WantClass("listen for a "+kind.String()+" link on a device without such memory", err, framework.ErrUnsupported, framework.ErrUnavailable)
		if err == nil {
			_ = end.Address.Close()
			r.Release(end.ID)
		}
	}
}
