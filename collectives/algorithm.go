package collectives

import (
	"fmt"
	"github.com/mscclpp-go/mscclpp/collectives/internal/kernelargs"
	"slices"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// Algorithm is an algorithm for a collective that the program itself provides. All
// ranks register the same ones.
type Algorithm struct {
	Collective Collective
	Name       string

	// Fits reports whether the algorithm can serve a call; nil: it serves every call.
	Fits func(Request) bool

	// Run performs the call. It may use the Comm for other collectives.
	Run func(c *Comm, call *Call) error
}

// algorithm is one entry of a Comm: a kernel, or a function of the program's.
type algorithm struct {
	name       string
	id         uint32
	collective Collective
	reach      reach // which registered buffers it needs
	outOfPlace bool  // input and output must differ
	kernel     comm.Kernel
	own        *Algorithm
	loaded     [kernel.DataTypes]device.Kernel
	window     bool // needs the switch window
	near       protocol
	isNear     bool
	copies     bool // is made of copies: see copies.go
}

// reach says which buffers of peers an algorithm reaches where they are.
type reach uint8

const (
	reachInputs reach = 1 << iota
	reachOutputs
)

const (
	zerocopy = "zerocopy"
	push     = "push"
	shares   = "shares"
	fetch    = "fetch" // of two ranks
)

// direct reports whether the kernel moves data between registered buffers itself.
func (a *algorithm) direct() bool { return a.reach != 0 && !a.copies }

// wide reports whether each block of a launch on a GPU has a lane to itself, however many
// there are.
func (a *algorithm) wide() bool { return a.direct() || a.belts() }

// belts reports whether data passes through the slots of pipes, divided among its lanes.
func (a *algorithm) belts() bool { return a.name == shares || a.name == fetch }

// memories names the registered memories that ranks have to have in common.
func (a *algorithm) memories(in, out uint64) uint64 {
	var id uint64
	if a.reach&reachInputs != 0 {
		id = in << 32
	}
	if a.reach&reachOutputs != 0 {
		id |= out
	}
	return id
}

// pushes reports whether it only stores to peers.
func (a *algorithm) pushes() bool { return a.reach == reachOutputs }

// reaches is what the built-in algorithms need. The root of a broadcast is read from
// its output, which all ranks have.
func reaches(name string, c Collective) reach {
	switch {
	case name == push || name == zerocopy && c == Broadcast:
		return reachOutputs
	case name == zerocopy && c == AllReduce:
		return reachInputs | reachOutputs
	case name == zerocopy:
		return reachInputs
	}
	return 0
}

// offered is what the transports' kernels can do.
type offered struct {
	algorithms [collectives][]*algorithm
	messages   map[string]*algorithm // kernels for messages, by name
	steps      map[string]*algorithm // kernels between copies, by name
}

// discover lists it. Of two kernels with one name the transport that is preferred
// wins.
func discover(kernels []comm.Kernel, ranks int) offered {
	o := offered{messages: map[string]*algorithm{}, steps: map[string]*algorithm{}}
	for _, k := range kernels {
		k.Layout = kernelargs.Layout()
		if k.Collective == "steps" && (k.Algorithm == "exchange" || k.Algorithm == "mail") {
			k.Layout = kernelargs.ExchangeLayout()
		}
		if k.MaxRanks != 0 && k.MaxRanks < ranks || !memoryOnly(k) {
			continue
		}
		switch k.Collective {
		case "transfers":
			if o.messages[k.Algorithm] == nil {
				o.messages[k.Algorithm] = &algorithm{name: k.Algorithm, collective: SendRecv, kernel: k}
			}
			continue
		case "steps":
			if o.steps[k.Algorithm] == nil {
				o.steps[k.Algorithm] = &algorithm{name: k.Algorithm, kernel: k}
			}
			continue
		}
		c, err := ParseCollective(k.Collective)
		if err != nil || find(o.algorithms[c], k.Algorithm) != nil {
			continue
		}
		near, isNear := nearProtocol(k.Algorithm)
		if isNear && ranks > kernelargs.LLRanks || k.Algorithm == fetch && ranks != 2 {
			continue
		}
		o.algorithms[c] = append(o.algorithms[c], &algorithm{
			name: k.Algorithm, id: kernelargs.NameID(k.Algorithm), collective: c, kernel: k,
			reach:      reaches(k.Algorithm, c),
			outOfPlace: (k.Algorithm == zerocopy || k.Algorithm == pull || k.Algorithm == push) && c == AllToAll,
			window:     slices.Contains(k.Channels, framework.KindSwitch),
			near:       near, isNear: isNear,
		})
	}
	return o
}

// memoryOnly reports whether the kernel needs no channels but those that this
// package sets up.
func memoryOnly(k comm.Kernel) bool {
	return !slices.Contains(k.Channels, framework.KindPort)
}

func find(list []*algorithm, name string) *algorithm {
	for _, a := range list {
		if a.name == name {
			return a
		}
	}
	return nil
}

// fits says why the algorithm cannot serve the request, or nil.
func (a *algorithm) fits(r *Request) error {
	switch {
	case a.own != nil:
		if a.own.Fits != nil && !a.own.Fits(*r) {
			return fmt.Errorf("%w: algorithm %s does not take this call", framework.ErrUnsupported, a.name)
		}
	case a.reach&^r.reached != 0:
		return fmt.Errorf("%w: algorithm %s needs registered buffers: use comm.Exchange", framework.ErrInvalid, a.name)
	case a.isNear && a.near.room(r) > a.near.of(r):
		return fmt.Errorf("%w: algorithm %s takes what fits into a slot of %d bytes: %d bytes do not", framework.ErrUnsupported, a.name, a.near.of(r), r.Bytes)
	case a.copies && r.noCopies:
		return fmt.Errorf("%w: algorithm %s is not prepared", framework.ErrUnsupported, a.name)
	case a.outOfPlace && r.InPlace:
		return fmt.Errorf("%w: algorithm %s does not work in place", framework.ErrUnsupported, a.name)
	case r.Collective.Reduces() && len(a.kernel.Types) > 0 && !slices.Contains(a.kernel.Types, r.Type.String()):
		return fmt.Errorf("%w: algorithm %s does not reduce %v", framework.ErrUnsupported, a.name, r.Type)
	case r.Collective.Reduces() && len(a.kernel.Ops) > 0 && !slices.Contains(a.kernel.Ops, r.Op.String()):
		return fmt.Errorf("%w: algorithm %s does not compute %v", framework.ErrUnsupported, a.name, r.Op)
	}
	return nil
}

// RegisterAlgorithm adds an algorithm. Built-in algorithms cannot be replaced. Calls and
// selectors may name it from then on, and so may rows given to UseTable; those of
// Options.Table, which are checked before, may not.
func (c *Comm) RegisterAlgorithm(a Algorithm) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case a.Collective == 0 || a.Collective >= collectives || a.Collective.Messages():
		return fmt.Errorf("%w: algorithm %q: no algorithms can be added for %v", framework.ErrInvalid, a.Name, a.Collective)
	case a.Name == "" || a.Run == nil:
		return fmt.Errorf("%w: algorithm %q: expected a name and a Run function", framework.ErrInvalid, a.Name)
	case find(c.algorithms[a.Collective], a.Name) != nil:
		return fmt.Errorf("%w: algorithm %q of %v is registered already", framework.ErrInvalid, a.Name, a.Collective)
	}
	c.algorithms[a.Collective] = append(c.algorithms[a.Collective], &algorithm{name: a.Name, id: kernelargs.NameID(a.Name), collective: a.Collective, own: &a})
	c.choices.reset()
	return nil
}

// Algorithms lists the names that CallOptions.Algorithm accepts for a collective.
func (c *Comm) Algorithms(k Collective) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k == 0 || k >= collectives || k.Messages() && c.messages == nil {
		return nil
	}
	if k.Messages() {
		return c.messageNames()
	}
	var names []string
	for _, a := range c.algorithms[k] {
		names = append(names, a.name)
	}
	return names
}
