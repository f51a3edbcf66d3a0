package flat

import (
	"github.com/mscclpp-go/mscclpp/collectives/internal/hostreduce"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/lanes"
	"github.com/mscclpp-go/mscclpp/collectives/internal/inter/offers"
)

// Engine performs them.
type Engine struct {
	*lanes.Session
	offers.List
	sum hostreduce.Accumulator
}
