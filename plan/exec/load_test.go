package exec

import (
	"crypto/sha256"
	"path/filepath"
	"testing"

	"github.com/mscclpp-go/mscclpp/plan/library"
	"github.com/mscclpp-go/mscclpp/plan/schema"
)

// BenchmarkLoad is what a rank computes to load one of the largest plans, of 4.4 MB: it reads the file, compares its hash with
// those of other ranks, and resolves the operations of all ranks.
func BenchmarkLoad(b *testing.B) {
	p, err := library.Compile("allreduce-2pa-packets", library.Shape{Ranks: 16, Blocks: 16})
	if err != nil {
		b.Fatal(err)
	}
	file := filepath.Join(b.TempDir(), "plan.json")
	if err := p.WriteFile(file); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		p, err := schema.ReadFile(file)
		if err != nil {
			b.Fatal(err)
		}
		if err := p.Check(); err != nil {
			b.Fatal(err)
		}
		_ = sha256.Sum256(p.Encode(0))
		if _, _, err := inspect(p); err != nil {
			b.Fatal(err)
		}
	}
}
