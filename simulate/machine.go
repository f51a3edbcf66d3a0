package simulate

import (
	"errors"
	"fmt"
	"math"
	"strings"
)

// ErrInvalid is wrapped by every error about what was asked for.
var ErrInvalid = errors.New("invalid")

// ErrTooLarge is an ErrInvalid too: a simulation that would take more than seconds.
var ErrTooLarge = fmt.Errorf("%w: too large", ErrInvalid)

// Machine describes a host and the network in numbers. Rates are GB/s in each
// direction, times are microseconds. [Parameters] says what each number means.
type Machine struct {
	Name string

	NICs, NICBandwidth             float64
	NetworkLatency, TriggerLatency float64
	MessageOverhead                float64
	LinkBandwidth, LinkLatency     float64
	LinkOverhead                   float64
	CopyBandwidth, CopyOverhead    float64
	PacketFactor, ReduceBandwidth  float64
	NetworkPacketFactor            float64
	Launch                         float64
}

// Parameter is one of the numbers, for flags, files and documentation.
type Parameter struct {
	Name string // as a flag and as a key of a file
	Unit string
	Help string

	positive bool // 0 makes no sense
	whole    bool
	least    float64
	of       func(*Machine) *float64
}

// Parameters lists all of them in the order of the documentation.
func Parameters() []Parameter {
	return []Parameter{
		{Name: "nics", Help: "network adapters of a host; its ranks share them, and a rank uses at most one", positive: true, whole: true, of: func(m *Machine) *float64 { return &m.NICs }},
		{Name: "nic-bandwidth", Unit: rate, Help: "rate of an adapter in each direction", positive: true, of: func(m *Machine) *float64 { return &m.NICBandwidth }},
		{Name: "network-latency", Unit: "us", Help: "from a posted message to its bytes in the memory of the other host's GPU", of: func(m *Machine) *float64 { return &m.NetworkLatency }},
		{Name: "trigger-latency", Unit: "us", Help: "from a kernel's trigger to the posted message", of: func(m *Machine) *float64 { return &m.TriggerLatency }},
		{Name: "message-overhead", Unit: "us", Help: "time of the posting thread for each message to another host", of: func(m *Machine) *float64 { return &m.MessageOverhead }},
		{Name: "link-bandwidth", Unit: rate, Help: "what kernels store out of a GPU, and into it, when all GPUs of the host do", positive: true, of: func(m *Machine) *float64 { return &m.LinkBandwidth }},
		{Name: "link-latency", Unit: "us", Help: "from a store to the peer's kernel that sees it; twice without packets, since a signal waits for the stores before it", of: func(m *Machine) *float64 { return &m.LinkLatency }},
		{Name: "link-overhead", Unit: "us", Help: "time for each peer of the host in a step", of: func(m *Machine) *float64 { return &m.LinkOverhead }},
		{Name: "copy-bandwidth", Unit: rate, Help: "the same rate for copy engines; 0: none are used", of: func(m *Machine) *float64 { return &m.CopyBandwidth }},
		{Name: "copy-overhead", Unit: "us", Help: "time of a step by copy engines beside its bytes", of: func(m *Machine) *float64 { return &m.CopyOverhead }},
		{Name: "packet-factor", Help: "bytes stored inside a host for a byte of a packet, which carries its own flags", positive: true, least: 1, of: func(m *Machine) *float64 { return &m.PacketFactor }},
		{Name: "network-packet-factor", Help: "bytes sent between hosts for a byte of a packet: 1 with one flag for all of it, 2 with flags beside the data", positive: true, least: 1, of: func(m *Machine) *float64 { return &m.NetworkPacketFactor }},
		{Name: "reduce-bandwidth", Unit: rate, Help: "bytes that a GPU reads and writes while it reduces", positive: true, of: func(m *Machine) *float64 { return &m.ReduceBandwidth }},
		{Name: "launch", Unit: "us", Help: "a kernel that does nothing", of: func(m *Machine) *float64 { return &m.Launch }},
	}
}

const (
	rate      = "GB/s" // the unit of all rates
	leastRate = 1e-6   // of what has one: times of less have hundreds of digits
)

// Get returns the value of the parameter in m.
func (p Parameter) Get(m *Machine) float64 { return *p.of(m) }

// Set changes the value in m. An error says what was expected.
func (p Parameter) Set(m *Machine, v float64) error {
	if err := p.check(v); err != nil {
		return err
	}
	*p.of(m) = v
	return nil
}

func (p Parameter) check(v float64) error {
	expected := "0 or more"
	switch {
	case p.whole:
		expected = "a whole number from 1"
	case p.least > 0:
		expected = fmt.Sprintf("%g or more", p.least)
	case p.Unit == rate && p.positive:
		expected = fmt.Sprintf("%g or more", leastRate)
	case p.Unit == rate:
		expected = fmt.Sprintf("0, or %g or more", leastRate)
	}
	bad := math.IsNaN(v) || math.IsInf(v, 0) || v < p.least || v > 1e9 || p.positive && v <= 0 || p.whole && v != math.Trunc(v) ||
		p.Unit == rate && v > 0 && v < leastRate
	if bad {
		return fmt.Errorf("%s %g: expected %s, and at most 1e9: %w", p.Name, v, expected, ErrInvalid)
	}
	return nil
}

// Validate checks all numbers.
func (m *Machine) Validate() error {
	for _, p := range Parameters() {
		if err := p.check(p.Get(m)); err != nil {
			return fmt.Errorf("machine %s: %w", m.Name, err)
		}
	}
	return nil
}

// nic is the rate, in bytes a microsecond, that one of ranks has on a host: no more
// than one adapter, because the path from a GPU to them is no wider, and a share if
// there are fewer adapters than ranks.
func (m *Machine) nic(ranks int) float64 {
	return m.NICBandwidth * 1e3 * min(1, m.NICs/float64(ranks))
}

// Machines returns the machines that are known by name. docs/scaling.md gives the
// origin of every number; a number that two machines have in common was measured on
// one.
func Machines() []Machine {
	h200 := Machine{
		Name: "h200",
		NICs: 8, NICBandwidth: 49.7, NetworkLatency: 2, TriggerLatency: 3.3, MessageOverhead: 0.3,
		LinkBandwidth: 349, LinkLatency: 0.71, LinkOverhead: 0, CopyBandwidth: 393, CopyOverhead: 29,
		PacketFactor: 2, NetworkPacketFactor: 1, ReduceBandwidth: 4160, Launch: 0.93,
	}
	h100 := h200
	h100.Name, h100.ReduceBandwidth = "h100", 2900
	return []Machine{h100, h200}
}

// FindMachine returns the machine of that name.
func FindMachine(name string) (Machine, error) {
	var names []string
	for _, m := range Machines() {
		if m.Name == strings.ToLower(name) {
			return m, nil
		}
		names = append(names, m.Name)
	}
	return Machine{}, fmt.Errorf("machine %q: expected one of %s: %w", name, strings.Join(names, ", "), ErrInvalid)
}
