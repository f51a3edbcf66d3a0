package comm

import "github.com/mscclpp-go/mscclpp/framework/comm/internal/counters"

// Signaling is where signals by copy engine go, for tests that compare what each takes.
type Signaling = counters.Signaling

// Ways of signaling by copy engine.
const (
	SignalByHost   = counters.SignalByHost
	SignalByStream = counters.SignalByStream
	SignalOnDevice = counters.SignalOnDevice
)

// Signal chooses for links that do not exist yet.
func (c *Communicator) Signal(s Signaling) { c.counters.Signaling = s }
