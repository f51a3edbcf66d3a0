package inter

import (
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/lanes"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/twolevel"
)

// Session is that of all engines, for tests of whole jobs.
func (e *Engine) Session() *lanes.Session { return e.session }

// TwoLevel is the engine of ranks on several hosts, or nil, for tests of whole jobs.
func (e *Engine) TwoLevel() *twolevel.Engine { return e.twolevel }
