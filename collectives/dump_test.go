package collectives_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"unsafe"

	"github.com/mscclpp-go/mscclpp/collectives"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

func dump(c *collectives.Comm) string {
	var b bytes.Buffer
	_ = c.Communicator().Dump(&b)
	return b.String()
}

// A user who asks a job that hangs learns which rank has not come.
func TestDumpShowsRanksThatAreBehind(t *testing.T) {
	for _, mode := range []collectives.Signatures{collectives.SignaturesStall, collectives.SignaturesAlways} {
		seen := make(chan struct{})
		job(t, 3, collectives.Options{Scratch: 8 << 20, Signatures: mode}, func(ctx context.Context, c *collectives.Comm) error {
			if text := dump(c); !strings.Contains(text, fmt.Sprintf("collectives: rank %d has begun no call", c.Rank())) {
				return fmt.Errorf("before the first call:\n%s", text)
			}
			in, out := make([]float32, 100), make([]float32, 100)
			call := func() error {
				return c.AllReduce(unsafe.Pointer(&in[0]), unsafe.Pointer(&out[0]), len(in), kernel.Float32, kernel.Sum, nil)
			}
			if err := call(); err != nil {
				return err
			}
			if c.Rank() == 2 {
				select { // the others are in their second call meanwhile
				case <-seen:
				case <-ctx.Done():
					return ctx.Err()
				}
				return call()
			}
			if c.Rank() == 1 {
				return call()
			}
			done := make(chan error, 1)
			go func() { done <- call() }()
			for {
				text := dump(c)
				if strings.Contains(text, "rank 0 has begun call 2: allreduce of 100 f32 sum by ") &&
					strings.Contains(text, "rank 1 has begun call 2: allreduce of 100 f32 sum by ") &&
					strings.Contains(text, "rank 2 has begun call 1: ") {
					close(seen)
					return <-done
				}
				if ctx.Err() != nil {
					return fmt.Errorf("rank 2 is behind:\n%s", text)
				}
			}
		})
	}
}

func TestDumpWithoutSignatures(t *testing.T) {
	job(t, 1, collectives.Options{Scratch: 8 << 20, Signatures: collectives.SignaturesNever}, func(_ context.Context, c *collectives.Comm) error {
		if text := dump(c); !strings.Contains(text, "check.signatures is never") {
			return fmt.Errorf("dump:\n%s", text)
		}
		return nil
	})
}
