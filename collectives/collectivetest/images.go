package collectivetest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework/device/host"
	"github.com/mscclpp-go/mscclpp/framework/kernel/image"
	"github.com/mscclpp-go/mscclpp/internal/ownfile"
)

// BuildHostImages is Images of the shm transport's kernels for this processor.
func BuildHostImages(ctx context.Context) (string, error) {
	dev, err := host.Open()
	if err != nil {
		return "", err
	}
	defer dev.Close()
	return Images(ctx, Source("transports/shm/kernels/kernels.json"), dev.Info().Archs[0])
}

// Images builds what spec lists for one architecture, in a folder of the user's
// cache for the source tree, and returns the folder. Images that are up to date are kept, so only the
// first run of all tests takes long; processes that come at the same time wait for
// each other.
func Images(ctx context.Context, spec, arch string) (string, error) {
	s, err := image.ReadSpec(spec)
	if err != nil {
		return "", err
	}
	target, err := image.FindTarget(arch)
	if err != nil {
		return "", err
	}
	place, err := filepath.Abs(spec)
	if err != nil {
		return "", fmt.Errorf("folder of test kernels: %w", err)
	}
	tree := sha256.Sum256([]byte(place))
	dir, err := ownfile.Cache("test-kernels", s.Name+"-"+arch+"-"+hex.EncodeToString(tree[:4]))
	if err != nil {
		return "", fmt.Errorf("folder of test kernels: %w", err)
	}
	store, err := ownfile.Cache("built")
	if err != nil {
		return "", fmt.Errorf("folder of test kernels: %w", err)
	}
	unlock, err := ownfile.Lock(filepath.Join(dir, "lock"))
	if err != nil {
		return "", fmt.Errorf("folder of test kernels: %w", err)
	}
	defer unlock()
	_, err = image.Build(ctx, s, dir, image.Options{Targets: []image.Target{target}, Store: store})
	return dir, err
}

// Source returns a path of this module's source tree, given from its root. Tests run in the
// folder of their package, so the root is the nearest folder above with a go.mod. Paths that the
// compiler recorded are no help: builds with -trimpath have none.
func Source(path string) string {
	dir, err := os.Getwd()
	for err == nil {
		if _, found := os.Stat(filepath.Join(dir, "go.mod")); found == nil || dir == filepath.Dir(dir) {
			break
		}
		dir = filepath.Dir(dir)
	}
	return filepath.Join(dir, filepath.FromSlash(path))
}

// HostImages returns the folder of shm's kernels for the processor that runs the test.
func HostImages(t testing.TB) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	dir, err := BuildHostImages(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return dir
}
