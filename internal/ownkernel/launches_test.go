package ownkernel_test

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/fnv"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/internal/ownkernel"
	"github.com/mscclpp-go/mscclpp/internal/ranktest"
)

func TestMain(m *testing.M) { ranktest.Main(m) }

// A launch that was left has the reason of the rank that ended the job, also where the news of it comes later; without one it is the
// fault of a peer, after a bounded time.
func TestLeft(t *testing.T) {
	none := func(_ context.Context, c *comm.Communicator) (struct{}, error) {
		err := ownkernel.Left(c, "op")
		if !errors.Is(err, framework.ErrPeer) || !strings.Contains(err.Error(), "op: a launch was left before its end") {
			return struct{}{}, err
		}
		return struct{}{}, c.Barrier(t.Context())
	}
	for r, err := range ranktest.Broken(t, 2, none, func(_ context.Context, c *comm.Communicator, _ struct{}) error {
		if c.Rank() == 1 {
			return ownkernel.Apart(c, "op", 0, "another size")
		}
		return ownkernel.Left(c, "op")
	}) {
		if err == nil || !strings.Contains(err.Error(), "it has begun a call with another size than rank 1") || !strings.Contains(err.Error(), "op") {
			t.Errorf("rank %d: %v: expected the difference", r, err)
		}
	}
}

// A signature is FNV-1a of the words, as kernels have no part in making it but compare it: every word and every byte counts.
func TestSignature(t *testing.T) {
	words := []uint32{1, 0, 0xfedcba98, 7}
	h := fnv.New32a()
	if err := binary.Write(h, binary.LittleEndian, words); err != nil {
		t.Fatal(err)
	}
	if got := ownkernel.Signature(words...); got != h.Sum32() {
		t.Errorf("%#x, expected %#x", got, h.Sum32())
	}
	if n := testing.AllocsPerRun(100, func() { ownkernel.Signature(words[0], words[1], words[2]) }); n != 0 {
		t.Errorf("%v allocations a call", n)
	}
}
