package transporttest

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
)

// testImages checks every image against its description. An image that is built
// where it runs may be missing; then the error has to say so.
func testImages(t *T) {
	r := t.rank(0)
	for _, info := range t.claims.Images {
		if info.ABI != kernel.ABI {
			t.Errorf("image %s has ABI %d, this suite knows %d", info.ID, info.ABI, kernel.ABI)
			continue
		}
		image, err := r.Image(t.ctx, info.ID)
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
		if info.Arch == t.bestArch(r, info) {
			t.loads(r, info, image)
		}
	}
	for _, id := range []string{"", "no-such-image", "../" + t.claims.Images[0].ID} {
		_, err := r.Image(t.ctx, id)
		t.wantClass("image "+id, err, framework.ErrInvalid)
	}
}

// bestArch is the architecture of the image that a rank would load in place of this
// one: the first that its device knows. Compiling the others as well would take a
// GPU's driver minutes, and nobody runs them there.
func (t *T) bestArch(r *rank, like framework.ImageInfo) string {
	for _, arch := range r.device.Info().Archs {
		for _, i := range t.claims.Images {
			if i.Arch == arch && i.Family == like.Family && i.Type == like.Type {
				return arch
			}
		}
	}
	return ""
}

// loads loads the image and looks up every kernel that is claimed for it.
func (t *T) loads(r *rank, info framework.ImageInfo, image []byte) {
	module, err := r.device.Load(image)
	if err != nil {
		t.Errorf("image %s does not load: %v", info.ID, err)
		return
	}
	defer module.Close()
	for _, k := range t.claims.Kernels {
		if k.Family != info.Family || info.Type != "" && !slices.Contains(k.Types, info.Type) {
			continue
		}
		if _, err := module.Kernel(k.Symbol); err != nil {
			t.Errorf("image %s: %v", info.ID, err)
		}
	}
}
