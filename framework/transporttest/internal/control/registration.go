package control

import (
	"math"
	"os"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/transporttest/internal/harness"
)

// testRegister registers the whole of a buffer, parts of it, one buffer twice, and
// ranges that are not aligned to anything.
func testRegister(t *harness.T) {
	r := t.Rank(0)
	b := r.Alloc(1 << 16)
	for _, part := range [][2]uint64{{0, 1 << 16}, {0, 1 << 16}, {4096, 4096}, {1, 1}, {65535, 1}, {777, 4097}} {
		reg := r.Registered(b.Part(part[0], part[1]))
		if len(reg.Key.Data) == 0 && len(reg.Key.Shares) == 0 {
			t.Errorf("the key of %d bytes at %d is empty", part[1], part[0])
		}
	}
}

// testRegisterBad offers segments that nobody can use. Whether one is invalid or
// unsupported may depend on the transport; that it is one of the two may not.
func testRegisterBad(t *harness.T) {
	r := t.Rank(0)
	b := r.Alloc(1 << 14)
	pipe, _, err := os.Pipe()
	if err != nil {
		t.Fatalf("make a pipe: %v", err)
	}
	defer pipe.Close()
	closed, _, err := os.Pipe()
	if err != nil {
		t.Fatalf("make a pipe: %v", err)
	}
	closed.Close()

	with := func(change func(s *framework.Segment)) framework.Segment {
		s := b.Segment
		change(&s)
		return s
	}
	shares := func(list ...framework.Share) func(*framework.Segment) {
		return func(s *framework.Segment) { s.Shares = list; s.Addr = 0 }
	}
	refused := func(what string, s framework.Segment, classes ...error) {
		reg, err := r.Register(t.Context(), s)
		t.WantClass("register "+what, err, classes...)
		if err == nil {
			_ = reg.Key.Close()
			r.Release(reg.ID)
		}
	}

	invalid, unsupported := framework.ErrInvalid, framework.ErrUnsupported
	refused("no bytes", with(func(s *framework.Segment) { s.Bytes = 0 }), invalid)
	if b.Measurable() {
		refused("beyond the end", b.Part(1<<14, 1), invalid)
		refused("across the end", b.Part(1<<14-1, 2), invalid)
	}
	refused("a range that overflows", b.Part(math.MaxUint64, 2), invalid)
	refused("an enormous range", b.Part(0, math.MaxUint64), invalid)
	refused("a share of unknown kind", with(shares(framework.Share{Kind: "carrier-pigeon", Blob: []byte("coo")})), invalid, unsupported)
	refused("a descriptor kind without descriptor", with(shares(framework.Share{Kind: framework.ShareMemFD})), invalid, unsupported)
	refused("a pipe", with(shares(framework.Share{Kind: framework.ShareMemFD, FD: pipe})), invalid, unsupported)
	refused("memory that its owner can shrink", with(shares(framework.Share{Kind: framework.ShareMemFD, FD: t.Shrinkable(1 << 14)})), invalid, unsupported)
	if t.Embedded(r) { // a closed descriptor cannot be sent to a process at all
		refused("a closed descriptor", with(shares(framework.Share{Kind: framework.ShareMemFD, FD: closed})), invalid, unsupported, framework.ErrClosed)
	}
	r.Registered(b.Segment) // none of it left the transport in a bad state
}
