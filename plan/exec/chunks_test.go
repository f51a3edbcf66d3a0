package exec

import (
	"testing"

	"github.com/mscclpp-go/mscclpp/plan/library"
)

// Plans that only copy, reduce and signal have a kernel of their own, the same on all ranks.
func TestPlansInChunks(t *testing.T) {
	for name, want := range map[string]string{
		"allreduce-2pa-chunks": forChunks, "allgather-chunks": forChunks,
		"allreduce-2pa-packets": forAll, "allreduce-2pa-ports": forAll, "allreduce-2pa-switch": forAll, "allreduce-pipelined": forAll,
	} {
		u, _, err := inspect(compiled(t, name, library.Shape{Ranks: 3, Blocks: 2, InPlace: name == "allreduce-2pa-switch"}))
		if err != nil {
			t.Fatal(err)
		}
		if u.kernel() != want {
			t.Errorf("%s: %s, expected %s", name, u.kernel(), want)
		}
	}
}

// A block has a thread for each word of its largest share, within bounds.
func TestThreadsOfChunks(t *testing.T) {
	_, all, err := inspect(compiled(t, "allreduce-2pa-chunks", library.Shape{Ranks: 2, Blocks: 2}))
	if err != nil {
		t.Fatal(err)
	}
	most := all[0].largest()
	if most != (share{1, 2}) {
		t.Fatalf("%+v: expected one chunk in two slices", most)
	}
	for bytes, want := range map[uint64]uint32{16: 128, 4 << 10: 128, 4<<10 + 16: 192, 8 << 10: 256, 16 << 10: 512, 1 << 30: 512} {
		if n := most.threads(512, bytes); n != want {
			t.Errorf("%d threads for chunks of %d bytes: expected %d", n, bytes, want)
		}
	}
	if n := most.threads(64, 1<<20); n != 64 {
		t.Errorf("%d threads of at most 64", n)
	}
}
