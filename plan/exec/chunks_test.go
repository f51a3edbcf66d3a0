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
