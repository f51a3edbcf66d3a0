package collectivetest

import (
	"bytes"
	"fmt"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives"
)

// Rig is where the trials of one rank run.
type Rig struct {
	Rank, Ranks int
	Partial     bool   // ranks are on several hosts, so partial results are rounded
	In, Out     Buffer // for the largest buffer of a trial, its shift, and Margin
	Call        func(t Trial, in, out unsafe.Pointer) error

	// Settle waits for what was called; nil if calls return when they have ended.
	Settle func() error
	// Graph records a call, which is not performed by that; nil if there are no graphs.
	Graph func(call func() error) (launch, free func() error, err error)
}

// Margin is how many bytes of its buffers a trial needs for itself.
const Margin = 2 * guard

// guard is a multiple of all alignments that kernels tell apart.
const guard = 256

// OnHost is a rig for communicators whose calls return when they have ended.
func OnHost(c *collectives.Comm, in, out []byte) Rig {
	return Rig{Rank: c.Rank(), Ranks: c.Size(), Partial: !c.Shared(), In: Bytes(in), Out: Bytes(out), Call: func(t Trial, in, out unsafe.Pointer) error {
		return t.Call(c, in, out, 0)
	}}
}

// Buffer is memory that collectives can be called with. Bytes implements it, and so do
// tests on devices.
type Buffer interface {
	Pointer(at int) unsafe.Pointer
	Write(p []byte, at int) error
	Read(p []byte, at int) error
}

// Bytes is memory of the host.
type Bytes []byte

// Pointer implements Buffer.
func (b Bytes) Pointer(at int) unsafe.Pointer {
	return unsafe.Add(unsafe.Pointer(unsafe.SliceData(b)), at)
}

// Write implements Buffer.
func (b Bytes) Write(p []byte, at int) error {
	return b.copy(at, len(p), func(own []byte) { copy(own, p) })
}

// Read implements Buffer.
func (b Bytes) Read(p []byte, at int) error {
	return b.copy(at, len(p), func(own []byte) { copy(p, own) })
}

func (b Bytes) copy(at, n int, with func(own []byte)) error {
	if at < 0 || n > len(b)-at {
		return fmt.Errorf("%d bytes at %d of a buffer of %d: expected room for the trial and its margin", n, at, len(b))
	}
	with(b[at : at+n])
	return nil
}

type place struct {
	buffer Buffer
	at     int
}

func (p place) pointer() unsafe.Pointer { return p.buffer.Pointer(p.at) }

// untouchedByte is what no input begins with and no call writes everywhere.
const untouchedByte = 0xa5

func untouched(b []byte) bool { return bytes.Count(b, []byte{untouchedByte}) == len(b) }
