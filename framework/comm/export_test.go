package comm

// Signaling is where signals by copy engine go, for tests that compare what each takes.
type Signaling = signaling

// Ways of signaling by copy engine.
const (
	SignalByHost   = signalByHost
	SignalByStream = signalByStream
	SignalOnDevice = signalOnDevice
)

// Signal chooses for links that do not exist yet.
func (c *Communicator) Signal(s Signaling) { c.control.signaling = s }
