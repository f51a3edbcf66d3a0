package gpus

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"syscall"
	"time"

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
			select {
			case c.values <- h:
			default:
				err = errUnasked
			}
			continue
		}
		rest = slices.Clone(rest)
		c.server.post(func() {
			c.check(c.act(&h, rest, f))
			if f != nil {
				_ = f.Close()
			}
		})
	}
	close(c.gone)
	c.server.post(func() {
		if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
			c.server.mistake(fmt.Errorf("%s: %w", c.name, err))
		}
		c.end()
	})
}

// nameOf names the process at the other end of a connection.
func nameOf(conn *net.UnixConn, number int) string {
	name := fmt.Sprintf("process %d", number)
	raw, err := conn.SyscallConn()
	if err != nil {
		return name
	}
	_ = raw.Control(func(fd uintptr) {
		if peer, err := syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED); err == nil {
			name += fmt.Sprintf(" (pid %d)", peer.Pid)
		}
	})
	return name
}

// check ends the connection to a process that made a mistake, or that does not read.
func (c *client) check(err error) {
	if err == nil || errors.Is(err, errGone) {
		return
	}
	c.server.mistake(fmt.Errorf("%s: %w", c.name, err))
	_ = c.conn.Close()
}

// send waits for a process that does not read as long as the machine has patience.
func (c *client) send(h *header, rest []byte) error {
	if err := c.conn.SetWriteDeadline(time.Now().Add(c.server.opts.Patience)); err != nil {
		return fmt.Errorf("%w: %w", errGone, err)
	}
	err := send(c.conn, h, rest)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("it has read nothing for %v", c.server.opts.Patience)
	case err != nil:
		return fmt.Errorf("%w: %w", errGone, err)
	}
	return nil
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
	case alive:
		return c.answer(h.ID, 0, "")
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
func (c *client) done(l *machine.Launch, err error) error {
	text := ""
	if err != nil {
		text = err.Error()
	}
	id := c.running[l]
	delete(c.running, l)
	return c.answer(id, int32(min(len(text), 1)), text)
}

func (c *client) answer(id uint64, code int32, text string) error {
	const most = 8 << 10
	return c.send(&header{Kind: result, Result: code, ID: id}, []byte(text[:min(len(text), most)]))
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
		if err := c.send(&h, nil); err != nil {
			return c.lost(size, addr, err)
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
			return c.lost(size, addr, errGone)
		case <-time.After(c.server.opts.Patience):
			return c.lost(size, addr, fmt.Errorf("it has not answered for %v", c.server.opts.Patience))
		}
		at, addr = at+n, addr+uint64(n)
	}
	return nil
}

// lost ends the connection to a process that gives no access to its memory: what it answers later would be to another question.
func (c *client) lost(size int, addr uint64, err error) error {
	_ = c.conn.Close()
	return fmt.Errorf("%d bytes at %#x of the host of %s: %w", size, addr, c.name, err)
}

var (
	errGone    = errors.New("the process has ended")
	errUnasked = errors.New("an answer to no question")
)

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
