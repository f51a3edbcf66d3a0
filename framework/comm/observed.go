package comm

import "github.com/mscclpp-go/mscclpp/framework/observe"

// observed is a communicator that observers may see.
type observed struct{ rank *observe.Rank }

// Observer returns the rank's observer, or nil.
func (o observed) Observer() *observe.Rank { return o.rank }
