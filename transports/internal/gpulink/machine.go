package gpulink

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/topo"
)

// Finder lists the GPUs of the machine, numbered by PCI address.
type Finder = func(context.Context) ([]topo.GPU, error)

// machine is this process's knowledge of the GPUs around it. It asks once: GPUs do not
// come and go under a job, and a driver can take a second to answer.
type machine struct {
	maker  *Maker
	find   Finder
	lookup func(string) (string, bool) // in the environment

	mu    sync.Mutex
	asked bool
	gpus  []topo.GPU
}

func newMachine(m *Maker, find Finder, lookup func(string) (string, bool)) *machine {
	return &machine{maker: m, find: find, lookup: lookup}
}

// all lists the GPUs. An error is not kept: the driver may be there next time.
func (m *machine) all(ctx context.Context) ([]topo.GPU, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.asked {
		return m.gpus, nil
	}
	gpus, err := m.find(ctx)
	if err != nil {
		return nil, err
	}
	if len(gpus) == 0 {
		return nil, fmt.Errorf("%w: %s", framework.ErrUnavailable, m.maker.None)
	}
	m.gpus, m.asked = gpus, true
	return gpus, nil
}

// identity says which GPU, or which part of one, an end of a link is on. Fields are
// empty where they are not known.
type identity struct{ uuid, pci, name string }

// String is how messages name a GPU.
func (g identity) String() string {
	switch {
	case g.pci == "" && g.uuid == "":
		return "a GPU that is not known"
	case g.pci == "":
		return g.uuid
	case g.name == "":
		return g.pci
	}
	return g.name + " at " + g.pci
}

// reportedIdentity is the identity of a rank's GPU from its facts. Drivers write addresses in either case.
func (m *Maker) reportedIdentity(f framework.Facts) identity {
	return identity{uuid: f.Other[m.fact("uuid")], pci: strings.ToLower(f.Other[m.fact("pci")])}
}

// own finds the GPU of a rank: by what the rank itself says, which has the driver's
// word, else by the number under which the runtime shows it to a process with the
// environment of this one.
func (m *machine) own(ctx context.Context, d framework.Device, f framework.Facts) (topo.GPU, identity, error) {
	reported := m.maker.reportedIdentity(f)
	gpus, err := m.all(ctx)
	if unavailable(err) && reported != (identity{}) {
		// The rank has opened its GPU, so there is a driver. A container may have
		// been given what computes and not what manages.
		return topo.GPU{UUID: reported.uuid, PCI: reported.pci}, reported, nil
	}
	if err != nil {
		return topo.GPU{}, reported, err
	}
	if reported != (identity{}) {
		g, ok := reported.among(gpus)
		if !ok {
			return topo.GPU{}, reported, fmt.Errorf("%w: %s: the rank says it is %s, which the driver does not show to this process", framework.ErrUnavailable, d, reported)
		}
		id := identity{uuid: g.UUID, pci: g.PCI, name: g.Name}
		if reported.uuid != "" {
			id.uuid = reported.uuid // of a part
		}
		return g, id, nil
	}
	seen := m.maker.Visible(gpus, m.lookup)
	if d.Index < 0 || d.Index >= len(seen) {
		return topo.GPU{}, reported, fmt.Errorf("%w: %s: the driver shows %d GPUs to this process; %s says which are visible", framework.ErrUnavailable, d, len(seen), m.maker.Variables)
	}
	g := seen[d.Index]
	return g, identity{uuid: g.UUID, pci: g.PCI, name: g.Name}, nil
}

// among finds the GPU by address, else by UUID, which may be that of a part.
func (g identity) among(gpus []topo.GPU) (topo.GPU, bool) {
	i := slices.IndexFunc(gpus, func(o topo.GPU) bool {
		if g.pci != "" {
			return o.PCI == g.pci
		}
		return o.UUID == g.uuid || o.MIG != nil && slices.ContainsFunc(o.MIG.Parts, func(p topo.Part) bool { return p.UUID == g.uuid })
	})
	if i < 0 {
		return topo.GPU{}, false
	}
	return gpus[i], true
}

// relation is the knowledge of a pair of GPUs.
type relation struct {
	same    bool   // one GPU, or one part of one
	known   bool   // the driver said whether one may address the other's memory
	barrier string // why not; "" if it may
	atomics bool
	links   int
	path    string // for the log: "NV18", "PCIe", "the same GPU"
}

// relate says how the own GPU stands to that of a peer.
func (m *machine) relate(ctx context.Context, own, peer identity) relation {
	if own.pci == "" || peer.pci == "" {
		return relation{path: "not known"}
	}
	gpus, err := m.all(ctx)
	if err != nil {
		return relation{path: "not known"}
	}
	a, ok := own.among(gpus)
	b, too := peer.among(gpus)
	if !ok || !too { // a container may show a rank its own GPU alone
		return relation{path: "not known: not all GPUs are visible here"}
	}
	if a.PCI == b.PCI {
		if a.MIG != nil && own.uuid != peer.uuid {
			return relation{known: true, path: "parts of one GPU", barrier: "parts of a partitioned GPU cannot address each other's memory"}
		}
		return relation{same: true, known: true, atomics: true, path: "the same GPU"}
	}
	r := relation{path: m.maker.Apart(a, b)}
	if r.links, _ = a.NVLinks(b); r.links > 0 {
		r.path = fmt.Sprintf("%s%d", m.maker.LinkWord, r.links)
	}
	to, reported := a.AccessTo(b)
	back, also := b.AccessTo(a)
	if !reported || !also {
		return r
	}
	r.known = true
	r.atomics = to.Atomics == topo.AccessOK && back.Atomics == topo.AccessOK
	switch {
	case !to.Granted():
		r.barrier = to.Why()
	case !back.Granted():
		r.barrier = back.Why()
	}
	return r
}
