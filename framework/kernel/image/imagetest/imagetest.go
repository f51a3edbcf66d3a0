// Package imagetest gives tests kernel images. They are built once, into a folder of
// the user's cache for each source tree; a later run finds them up to date.
package imagetest

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel/image"
	"github.com/mscclpp-go/mscclpp/internal/ownfile"
)

// Build builds the spec for some targets and opens the result. It skips the test
// where there is no compiler. Test processes that come at the same time wait for
// each other.
func Build(t testing.TB, spec, targets string) *image.Set {
	t.Helper()
	dir, err := build(t, spec, targets)
	if errors.Is(err, framework.ErrUnavailable) {
		t.Skipf("no kernel images: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	set, err := image.Open(os.DirFS(dir))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func build(t testing.TB, spec, targets string) (string, error) {
	s, err := image.ReadSpec(spec)
	if err != nil {
		return "", err
	}
	parsed, err := image.ParseTargets(targets)
	if err != nil {
		return "", err
	}
	place, err := filepath.Abs(spec)
	if err != nil {
		return "", err
	}
	tree := sha256.Sum256([]byte(place))
	dir, err := ownfile.Cache("images", s.Name+"-"+hex.EncodeToString(tree[:4]))
	if err != nil {
		return "", err
	}
	store, err := ownfile.Cache("built")
	if err != nil {
		return "", err
	}
	unlock, err := ownfile.Lock(filepath.Join(dir, "lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	_, err = image.Build(t.Context(), s, dir, image.Options{Targets: parsed, Store: store})
	return dir, err
}
