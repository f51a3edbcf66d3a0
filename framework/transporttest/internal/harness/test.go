package harness

import (
	"github.com/mscclpp-go/mscclpp/framework"
)

// Test is one entry of the suite.
type Test struct {
	Name string
	Rule string              // the rule that it checks, in a sentence
	When func(c Claims) bool // nil: always
	Bare bool                // needs no memory that the transport serves
	Body func(t *T)
}

// Claims are what decides which tests apply.
type Claims struct {
	framework.Description
	Process bool   // the side is a process that can be killed
	Engine  bool   // the device has copy engines
	Actor   []byte // image of the actor kernel that the device can load; nil if none
	Memory  Memory // the memory that the device of the suite has for the transport
}

// The tests of channels act as kernels on memory that this process can touch. On
// other devices those named device/ and driven/ take their place.

// MemoryClaimed reports whether the transport has memory links whose memory this process
// can touch.
func MemoryClaimed(c Claims) bool { return c.Has(framework.KindMemory) && !c.Memory.Apart }

// SwitchClaimed reports whether the transport has switch links whose memory this process
// can touch.
func SwitchClaimed(c Claims) bool { return c.Has(framework.KindSwitch) && !c.Memory.Apart }

// PortClaimed reports whether the transport has port links with proxies of its own, and
// memory that this process can touch.
func PortClaimed(c Claims) bool {
	return c.Has(framework.KindPort) && c.Proxy == framework.ProxyPlugin && !c.Memory.Apart
}

// IsProcess reports whether the side is a process that can be killed.
func IsProcess(c Claims) bool { return c.Process }

// IsProcessWithPort reports whether PortClaimed holds of such a process.
func IsProcessWithPort(c Claims) bool { return c.Process && PortClaimed(c) }
