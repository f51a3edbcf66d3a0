package collectives_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

func data(seed uint64, rank, bytes int) []byte {
	b := make([]byte, bytes)
	reference.Fill(b, kernel.Uint8, kernel.Sum, seed, rank, 0)
	return b
}

// Every rank sends to every other, itself included, before it receives, and more
// than the pipes hold: only a group can do that.
func TestGroupExchangesInAnyOrder(t *testing.T) {
	for _, n := range []int{1, 2, 3, 5} {
		job(t, n, collectives.Options{Scratch: uint64(n) * 256 << 10}, func(ctx context.Context, c *collectives.Comm) error {
			for _, size := range []int{0, 1, 4097, 1 << 20} {
				c.GroupStart()
				for peer := range n {
					out := data(uint64(peer), c.Rank(), size)
					if err := c.Send(pointer(out), size, kernel.Uint8, peer, nil); err != nil {
						return err
					}
				}
				in := make([][]byte, n)
				for peer := n - 1; peer >= 0; peer-- {
					in[peer] = make([]byte, size)
					if err := c.Recv(pointer(in[peer]), size, kernel.Uint8, peer, nil); err != nil {
						return err
					}
				}
				if err := c.GroupEnd(); err != nil {
					return err
				}
				for peer := range n {
					if !bytes.Equal(in[peer], data(uint64(c.Rank()), peer, size)) {
						return fmt.Errorf("%d bytes from rank %d are wrong", size, peer)
					}
				}
			}
			return nil
		})
	}
}

// Messages between two ranks arrive in order, also several in one group and of
// different lengths.
func TestMessagesKeepTheirOrder(t *testing.T) {
	sizes := []int{5, 0, 100000, 64, 1}
	job(t, 2, collectives.Options{}, func(ctx context.Context, c *collectives.Comm) error {
		peer := 1 - c.Rank()
		in := make([][]byte, len(sizes))
		c.GroupStart()
		c.GroupStart()
		for i, s := range sizes {
			in[i] = make([]byte, s)
			if err := c.Recv(pointer(in[i]), s, kernel.Uint8, peer, nil); err != nil {
				return err
			}
		}
		for i, s := range sizes {
			if err := c.Send(pointer(data(uint64(i), c.Rank(), s)), s, kernel.Uint8, peer, nil); err != nil {
				return err
			}
		}
		if err := c.GroupEnd(); err != nil {
			return err
		}
		if err := c.GroupEnd(); err != nil {
			return err
		}
		for i, s := range sizes {
			if !bytes.Equal(in[i], data(uint64(i), peer, s)) {
				return fmt.Errorf("message %d is wrong", i)
			}
		}
		if err := c.GroupEnd(); !errors.Is(err, framework.ErrInvalid) {
			return fmt.Errorf("group end without start: %v", err)
		}
		return nil
	})
}

func TestAllToAllV(t *testing.T) {
	for _, n := range []int{1, 2, 3, 8} {
		job(t, n, collectives.Options{Scratch: uint64(n) * 256 << 10}, func(ctx context.Context, c *collectives.Comm) error {
			block := func(from, to int) int { return (from*7 + to*13) % 5 * 1000 }
			var sc, sd, rc, rd []int
			sent, received := 3, 5 // the first elements of the buffers are not part of any block
			for p := range n {
				sc, sd = append(sc, block(c.Rank(), p)), append(sd, sent)
				rc, rd = append(rc, block(p, c.Rank())), append(rd, received)
				sent += sc[p]
				received += rc[p]
			}
			in, out := make([]uint32, sent), make([]uint32, received)
			for p := range n {
				for i := range sc[p] {
					in[sd[p]+i] = uint32(c.Rank()<<24 | p<<16 | i)
				}
			}
			if err := c.AllToAllV(unsafe.Pointer(unsafe.SliceData(in)), sc, sd, unsafe.Pointer(unsafe.SliceData(out)), rc, rd, kernel.Uint32, nil); err != nil {
				return err
			}
			for p := range n {
				for i := range rc[p] {
					if got, want := out[rd[p]+i], uint32(p<<24|c.Rank()<<16|i); got != want {
						return fmt.Errorf("element %d from rank %d is %#x, expected %#x", i, p, got, want)
					}
				}
			}
			return nil
		})
	}
}

// More messages than the arguments of a launch have room for, between few ranks: some
// empty, some longer than a pipe, and all sends before the receives that they wait
// for. A second group uses the same memory, a third needs more of it.
func TestGroupOfManyMessages(t *testing.T) {
	const ranks = 3
	size := func(from, to, i int) int {
		if i%40 == 7 {
			return 150000
		}
		return []int{0, 1, 64, 409}[(from+2*to+i)%4]
	}
	job(t, ranks, collectives.Options{Scratch: ranks * 256 << 10}, func(ctx context.Context, c *collectives.Comm) error {
		for round, each := range []int{43, 100, 100, 1200} { // of each pair, in each direction
			var in [ranks][][]byte
			c.GroupStart()
			for i := range each {
				for peer := range ranks {
					out := data(uint64(i), ranks*c.Rank()+peer, size(c.Rank(), peer, i))
					if err := c.Send(pointer(out), len(out), kernel.Uint8, peer, nil); err != nil {
						return err
					}
				}
			}
			for i := range each {
				for peer := ranks - 1; peer >= 0; peer-- {
					b := make([]byte, size(peer, c.Rank(), i))
					in[peer] = append(in[peer], b)
					if err := c.Recv(pointer(b), len(b), kernel.Uint8, peer, nil); err != nil {
						return err
					}
				}
			}
			if err := c.GroupEnd(); err != nil {
				return err
			}
			for peer, list := range in {
				for i, b := range list {
					if !bytes.Equal(b, data(uint64(i), ranks*peer+c.Rank(), len(b))) {
						return fmt.Errorf("round %d: message %d from rank %d, of %d bytes, is wrong", round, i, peer, len(b))
					}
				}
			}
		}
		return nil
	})
}

// One rank has sent its messages in one long group, its peer takes them one by one:
// groups need not match each other.
func TestLongGroupMeetsSingleCalls(t *testing.T) {
	const each = 300
	job(t, 2, collectives.Options{}, func(ctx context.Context, c *collectives.Comm) error {
		if c.Rank() == 0 {
			c.GroupStart()
			for i := range each {
				if err := c.Send(pointer(data(uint64(i), 0, 1000+i)), 1000+i, kernel.Uint8, 1, nil); err != nil {
					return err
				}
			}
			return c.GroupEnd()
		}
		for i := range each {
			b := make([]byte, 1000+i)
			if err := c.Recv(pointer(b), len(b), kernel.Uint8, 0, nil); err != nil {
				return err
			}
			if !bytes.Equal(b, data(uint64(i), 0, len(b))) {
				return fmt.Errorf("message %d is wrong", i)
			}
		}
		return nil
	})
}

// Bytes are what is matched, as with NCCL: neither types nor counts.
func TestTypesOfMessagesAreNotCompared(t *testing.T) {
	job(t, 2, collectives.Options{Signatures: collectives.SignaturesAlways}, func(ctx context.Context, c *collectives.Comm) error {
		b := data(1, 0, 4000)
		if c.Rank() == 0 {
			return c.Send(pointer(b), 4000, kernel.Int8, 1, nil)
		}
		in := make([]byte, 4000)
		if err := c.Recv(pointer(in), 1000, kernel.Float32, 0, nil); err != nil {
			return err
		}
		if !bytes.Equal(in, b) {
			return errors.New("the message is wrong")
		}
		return nil
	})
}

// A message of another length than expected ends the communicator on both sides
// with an error; it does not hang and does not write beyond the buffer.
func TestMessageOfAnotherLength(t *testing.T) {
	job(t, 2, collectives.Options{}, func(ctx context.Context, c *collectives.Comm) error {
		b := make([]byte, 2000)
		var err error
		if c.Rank() == 0 {
			err = c.Send(pointer(b), 2000, kernel.Uint8, 1, nil)
			if err != nil {
				return err
			}
			select { // the receiver informs all ranks
			case <-c.Communicator().Done():
			case <-time.After(4 * time.Minute):
				return errors.New("not told")
			}
			return nil
		}
		err = c.Recv(pointer(b), 250, kernel.Float32, 0, nil)
		if !errors.Is(err, framework.ErrInvalid) || framework.PeerOf(err) != 0 || !strings.Contains(err.Error(), "length of 2000 bytes: expected 1000 as rank 1") {
			return fmt.Errorf("receive: %v: expected both lengths, and rank 0", err)
		}
		return nil
	})
}
