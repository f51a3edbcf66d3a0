package gpus

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"

	"github.com/mscclpp-go/mscclpp/internal/gfx/machine"
	"github.com/mscclpp-go/mscclpp/internal/gfx/memory"
)

// read takes what the client sends, and has the server act upon it in order.
func (c *client) read() {
	var err error
	for buffer := make([]byte, maxMessage); err == nil; {
		var h header
		var rest []byte
		var f *os.File
		if h, rest, f, err = receive(c.conn, buffer); err != nil {
			break
		}
		if h.Kind == value {
			c.values <- h
			continue
		}
		rest = slices.Clone(rest)
		c.server.post(func() {
			if err := c.act(&h, rest, f); err != nil {
				c.server.mistake(fmt.Errorf("process %d: %w", c.number, err))
				_ = c.conn.Close()
			}
			if f != nil {
				_ = f.Close()
			}
		})
	}
	close(c.gone)
	c.server.post(func() {
		if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
			c.server.mistake(fmt.Errorf("process %d: %w", c.number, err))
		}
		c.end()
	})
}

// act does what a message asks for. An error is one of the client's library, and ends the connection.
func (c *client) act(h *header, rest []byte, f *os.File) error {
	s := c.server
	switch h.Kind {
	case hello:
		if arch, _, _ := bytes.Cut(rest, []byte(":")); string(arch) != s.opts.Shape.Arch {
			return fmt.Errorf("a runtime for %s: this machine has GPUs of %s", arch, s.opts.Shape.Arch)
		}
		return nil
	case code:
		p, err := s.program(f)
		if err != nil {
			return c.answer(h.ID, 1, err.Error())
		}
		c.codes[h.ID] = p
		return c.answer(h.ID, 0, "")
	case device:
		return c.memory(h, f)
	case host:
		return c.space.add(span{start: h.Address, end: h.Address + h.Bytes, own: h.Own})
	case forget:
		x, found := c.space.remove(h.Address)
		if !found {
			return fmt.Errorf("memory at %#x: it is not known", h.Address)
		}
		return s.files.leave(x)
	case launch:
		return c.launch(h, rest)
	}
	return fmt.Errorf("message of kind %d: it is not known", h.Kind)
}

func (c *client) memory(h *header, f *os.File) error {
	if f == nil || int(h.Device) >= c.server.opts.GPUs {
		return fmt.Errorf("memory of device %d without a file, or of a device that is not there: there are %d", h.Device, c.server.opts.GPUs)
	}
	kind := memory.Coarse
	if h.Value[0] != 0 {
		kind = memory.Uncached
	}
	if h.Device < 0 { // another process allocated it, and has not said so: none of these GPUs'
		kind = memory.HostKind
	}
	x, err := c.server.files.open(f, max(int(h.Device), memory.Host), kind)
	if err != nil {
		return err
	}
	if h.Offset+h.Bytes > uint64(len(x.bytes)) {
		return fmt.Errorf("%d bytes at %d of memory that has %d", h.Bytes, h.Offset, len(x.bytes))
	}
	return c.space.add(span{start: h.Address, end: h.Address + h.Bytes, here: x.region.Start + h.Offset, file: x, own: h.Own})
}

func (c *client) launch(h *header, rest []byte) error {
	name, args, found := bytes.Cut(rest, []byte{0})
	p := c.codes[h.Value[0]]
	if !found || p == nil || h.Device < 0 || int(h.Device) >= c.server.opts.GPUs {
		return fmt.Errorf("launch %q of code object %d on device %d: expected a name, a code object, and one of %d devices", name, h.Value[0], h.Device, c.server.opts.GPUs)
	}
	l := &machine.Launch{Device: int(h.Device), Space: c.number, Program: p, Kernel: string(name), Grid: h.Grid, Block: h.Block, Args: args}
	if err := c.server.machine.Add(l); err != nil {
		c.server.mistake(err)
		return c.answer(h.ID, 1, err.Error())
	}
	c.server.ran(l)
	c.running[l] = h.ID
	return nil
}

// done says that a launch has ended.
func (c *client) done(l *machine.Launch, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	_ = c.answer(c.running[l], int32(min(len(text), 1)), text) // a client that is gone needs none
	delete(c.running, l)
}

func (c *client) answer(id uint64, code int32, text string) error {
	const most = 8 << 10
	return send(c.conn, &header{Kind: result, Result: code, ID: id}, []byte(text[:min(len(text), most)]))
}

// access has the client access memory of its own, in words of at most 8 bytes.
func (c *client) access(operation, own int32, addr uint64, size int, data *[4]uint32) error {
	for at := 0; at < size; {
		n := min(size-at, 8)
		if addr%8 != 0 {
			n = min(n, 4)
		}
		h := header{Kind: access, Own: own, Result: operation, Address: addr, Bytes: uint64(n)}
		word := func(i int) uint64 { return uint64(data[i]) }
		h.Value[0] = word(at / 4)
		switch {
		case operation == swaps: // the new value, and the one that is expected
			h.Value[1] = word(1)
		case n == 8:
			h.Value[0] |= word(at/4+1) << 32
		}
		if err := send(c.conn, &h, nil); err != nil {
			return fmt.Errorf("%d bytes at %#x of the host: %w", size, addr, err)
		}
		select {
		case v := <-c.values:
			if v.Result != 0 {
				return fmt.Errorf("%d bytes at %#x of the host: the process has no memory there", size, addr)
			}
			if operation != stores {
				data[at/4] = uint32(v.Value[0])
				if n == 8 {
					data[at/4+1] = uint32(v.Value[0] >> 32)
				}
			}
		case <-c.gone:
			return fmt.Errorf("%d bytes at %#x of the host: %w", size, addr, errGone)
		}
		at, addr = at+n, addr+uint64(n)
	}
	return nil
}

var errGone = errors.New("the process has ended")

// end takes back what the process had.
func (c *client) end() {
	for l := range c.running {
		c.server.machine.Drop(l)
	}
	for _, x := range c.space.list {
		if err := c.server.files.leave(x); err != nil {
			c.server.mistake(err)
		}
	}
	_ = c.conn.Close()
	delete(c.server.clients, c.number)
	delete(c.server.memory.of, c.number)
}
