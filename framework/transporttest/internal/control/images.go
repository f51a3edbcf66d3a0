package control

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/transporttest/internal/harness"
)

// testImages checks every image against its description. An image that is built
// where it runs may be missing; then the error has to say so.
func testImages(t *harness.T) {
	r := t.Rank(0)
	for _, info := range t.Claims.Images {
		if info.ABI != kernel.ABI {
			t.Errorf("image %s has ABI %d, this suite knows %d", info.ID, info.ABI, kernel.ABI)
			continue
		}
		image, err := r.Image(t.Context(), info.ID)
		if errors.Is(err, framework.ErrUnavailable) && info.SHA256 == "" {
			continue // claimed, to be built on this machine, and not built
		}
		if err != nil {
			t.Errorf("image %s: %v", info.ID, err)
			continue
		}
		if len(image) == 0 {
			t.Errorf("image %s is empty", info.ID)
			continue
		}
		sum := sha256.Sum256(image)
		if info.SHA256 != "" && info.SHA256 != hex.EncodeToString(sum[:]) {
			t.Errorf("image %s has another checksum than its description", info.ID)
		}
		if info.Bytes != 0 && info.Bytes != uint64(len(image)) {
			t.Errorf("image %s has %d bytes, its description says %d", info.ID, len(image), info.Bytes)
		}
		if info.Arch == bestArch(t, r, info) {
			loads(t, r, info, image)
		}
	}
	for _, id := range []string{"", "no-such-image", "../" + t.Claims.Images[0].ID} {
		_, err := r.Image(t.Context(), id)
		t.WantClass("image "+id, err, framework.ErrInvalid)
	}
}

// bestArch is the architecture of the image that a rank would load in place of this
// one: the first that its device knows. Compiling the others as well would take a
// GPU's driver minutes, and nobody runs them there.
func bestArch(t *harness.T, r *harness.Rank, like framework.ImageInfo) string {
	for _, arch := range r.Device.Info().Archs {
		for _, i := range t.Claims.Images {
			if i.Arch == arch && i.Family == like.Family && i.Type == like.Type {
				return arch
			}
		}
	}
	return ""
}

// loads loads the image and looks up every kernel that is claimed for it.
func loads(t *harness.T, r *harness.Rank, info framework.ImageInfo, image []byte) {
	module, err := r.Device.Load(image)
	if err != nil {
		t.Errorf("image %s does not load: %v", info.ID, err)
		return
	}
	defer module.Close()
	for _, k := range t.Claims.Kernels {
		if k.Family != info.Family || info.Type != "" && !slices.Contains(k.Types, info.Type) {
			continue
		}
		if _, err := module.Kernel(k.Symbol); err != nil {
			t.Errorf("image %s: %v", info.ID, err)
		}
	}
}
