// Package engine is what the face of package collectives and those that perform collectives have in common:
// how a call is described, what an engine offers, and what is asked of it.
package engine

import (
	"io"
	"sync/atomic"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"github.com/mscclpp-go/mscclpp/framework/collective"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// Algorithm is one way to perform one collective.
type Algorithm struct {
	Name       string
	ID         uint32 // of the name, as signatures carry it
	Collective collective.Kind
	Engine     Engine   // the engine that offers it
	Key        int      // by which the engine finds what else it knows…
	Own        any      // …or that itself
	Types      []string // that it reduces; none: all

	ByRow  bool        // only rows and names lead to it; else it is also the last resort
	Beaten atomic.Bool // the built-in table passes it over

	// Calls says that Run may make other calls: it is a function of the program that has not said otherwise.
	Calls bool

	// Fits says why the algorithm cannot serve a call; nil: it serves every call.
	Fits func(*Query) error

	// Shape is how its kernel is launched, with a row of the table that decided, or nil.
	Shape func(*Query, *Row) device.Launch

	// Ready makes everything ready that Run needs. again says that the call has to be chosen for
	// once more: what the algorithm needs cannot be had, or something else is faster. It is not for calls
	// whose algorithm was named.
	Ready func(*Call) (again bool, err error)
}

// New describes an algorithm.
func New(k collective.Kind, name string) *Algorithm {
	return &Algorithm{Name: name, ID: kernelargs.NameID(name), Collective: k}
}

// Find returns the algorithm of a name, or nil.
func Find(list []*Algorithm, name string) *Algorithm {
	for _, a := range list {
		if a.Name == name {
			return a
		}
	}
	return nil
}

// Call is one call, from when its arguments are known until it is performed.
type Call struct {
	Query
	Input   unsafe.Pointer
	Output  unsafe.Pointer
	In, Out Buffer
	Stream  device.Stream
	Scale   float64

	// Multiplied says that the inputs of a PreMulSum were multiplied before, so that Op is Sum.
	Multiplied bool

	Algorithm *Algorithm
	Launch    device.Launch
	Named     bool // the program has named the algorithm
	Repeats   bool // as long as tables and offers are the same, a call like this one has the same algorithm

	// Chosen lists the algorithms that the tables choose for other calls of a collective.
	Chosen func(k collective.Kind, t kernel.DataType) []*Algorithm
}

// Announced is the reduction that signatures tell peers of.
func (c *Call) Announced() kernel.Op {
	if c.Multiplied {
		return kernel.PreMulSum
	}
	return c.Op
}

// Group is messages that are performed together.
type Group struct {
	List   []kernelargs.Transfer // by direction and peer
	Stream device.Stream
	Kind   collective.Kind
	By     *Algorithm // that the caller has named, or nil
}

// Engine performs collectives of one communicator in one of the ways that there are: kernels over shared
// memory, port channels, functions of the program. The face asks one thing at a time, of all engines together, so
// that an engine needs no lock for what calls change. Offers, Fits of an algorithm, Check and Dump are the exception: the
// face may ask for these meanwhile.
type Engine interface {
	// Offers lists the algorithms as they are now.
	Offers() Offers

	// Settle finds out what has to be known before an algorithm is chosen for a call of a collective on a stream: whether
	// earlier calls have failed, and, together with the other ranks, what can be offered. changed says
	// that Offers has something else to say than before.
	Settle(k collective.Kind, s device.Stream) (changed bool, err error)

	// Run performs a call by one of the algorithms that the engine offers, after that is ready.
	Run(*Call) error

	// Exchange performs a group of messages.
	Exchange(*Group) error

	// Prepare loads what calls of a collective may need: the algorithms that tables choose.
	Prepare(k collective.Kind, t kernel.DataType, chosen []*Algorithm) error

	// Close releases everything. It is local.
	Close() error
}

// Checker is an engine that knows of failures of calls that have returned.
type Checker interface{ Check() error }

// Dumper is an engine that can say what its ranks have begun, at any time before Close.
type Dumper interface{ Dump(io.Writer) }

// Offers is what an engine offers.
type Offers struct {
	Algorithms []*Algorithm // for all collectives; SendRecv stands for all messages, the best first
	Rows       []Row        // the built-in table
	Last       []Row        // for calls that nothing else serves
	Basis      string       // the origin of the rows, in words, where there are several kinds of them
	Unplaced   []Unplaced
}

// Unplaced is an algorithm that there is, but not for this communicator.
type Unplaced struct {
	Collective collective.Kind
	Name       string
	Reason     error
}

// Why is the reason why an algorithm is not offered; nil: none is known.
func Why(list []Unplaced, k collective.Kind, name string) error {
	for i := range list {
		if list[i].Collective == k && list[i].Name == name {
			return list[i].Reason
		}
	}
	return nil
}

// Of lists the algorithms for a collective.
func (o *Offers) Of(k collective.Kind) (list []*Algorithm) {
	for _, a := range o.Algorithms {
		if a.Collective == k {
			list = append(list, a)
		}
	}
	return list
}
