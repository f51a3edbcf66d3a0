package cudaipc

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/topo"
)

func bound(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func must[T any](t testing.TB) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// source reads a file of the source tree, which test programs may have left behind.
func source(t testing.TB, path string) []byte {
	t.Helper()
	if _, err := os.Stat("../../go.mod"); err != nil {
		t.Skipf("needs the source tree: %v", err)
	}
	return must[[]byte](t)(os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(path))))
}

// open returns a transport on a machine without GPUs.
func open(t testing.TB) interface {
	framework.Transport
	framework.Imager
} {
	t.Helper()
	none := func(context.Context) ([]topo.GPU, error) {
		return nil, fmt.Errorf("%w: no NVIDIA driver: install it", framework.ErrUnavailable)
	}
	tr := must[framework.Transport](t)(NewWith(Config{}.Defaults(), none))
	return tr.(interface {
		framework.Transport
		framework.Imager
	})
}
