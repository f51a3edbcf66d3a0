package plugins

import (
	"os"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
)

func benchmarkSpec(b *testing.B) Spec {
	path, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	return Spec{Path: path, Env: []string{roleKey + "=mirror", raceExit}}
}

// BenchmarkOpen is a start and an end of a plugin.
func BenchmarkOpen(b *testing.B) {
	for b.Loop() {
		c, err := Open(b.Context(), benchmarkSpec(b))
		if err != nil {
			b.Fatal(err)
		}
		c.Shutdown()
	}
}

// BenchmarkRegister is a call with a descriptor each way.
func BenchmarkRegister(b *testing.B) {
	c, err := Open(b.Context(), benchmarkSpec(b))
	if err != nil {
		b.Fatal(err)
	}
	defer c.Shutdown()
	f, err := os.Open("/dev/null")
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	seg := framework.Segment{Bytes: 1, Shares: []framework.Share{{Kind: framework.ShareMemFD, FD: f}}}
	for b.Loop() {
		r, err := c.Register(b.Context(), seg)
		if err != nil {
			b.Fatal(err)
		}
		r.Key.Close()
		if err := c.Close(b.Context(), r.ID); err != nil {
			b.Fatal(err)
		}
	}
}
