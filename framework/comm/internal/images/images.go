// Package images chooses among the compiled kernels that a transport describes, and says
// why it cannot. It makes no calls: everything that it needs is in the Description.
package images

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mscclpp-go/mscclpp/framework"
)

// Want is what a program can launch.
type Want struct {
	Archs  []string // of the device, the best first
	Family string
	Type   string // element type; "": any
	ABI    uint32 // of handles and entry points
	Layout string // of the arguments that will be passed; "": it is not compared
}

// Choose returns the image for the best architecture that has the program's ABI and
// layout. If there is none, the error is ErrUnavailable, says why and what to do, and the
// image is the one that lacks nothing but its layout, if there is such a one.
func Choose(list []framework.ImageInfo, w Want) (framework.ImageInfo, error) {
	all := keep(list, func(i framework.ImageInfo) bool { return i.Family == w.Family && w.typed(i) })
	if len(all) == 0 {
		return framework.ImageInfo{}, fmt.Errorf("%w: no image of family %q%s: expected one for %s: build the kernels (make kernels), or use a transport that carries them",
			framework.ErrUnavailable, w.Family, w.ofType(), or(w.Archs))
	}
	var here []framework.ImageInfo
	for _, arch := range w.Archs {
		here = append(here, keep(all, func(i framework.ImageInfo) bool { return i.Arch == arch })...)
	}
	if len(here) == 0 {
		return framework.ImageInfo{}, fmt.Errorf("%w: images of family %q%s are for %s alone, and this device takes %s: build the kernels for it (make kernels), or use a transport for this device",
			framework.ErrUnavailable, w.Family, w.ofType(), or(archs(all)), or(w.Archs))
	}
	same := keep(here, func(i framework.ImageInfo) bool { return i.ABI == w.ABI })
	if len(same) == 0 {
		return framework.ImageInfo{}, fmt.Errorf("%w: image %s has device ABI %d, expected %d: use one release of this program and of its plugins",
			framework.ErrUnavailable, here[0].ID, here[0].ABI, w.ABI)
	}
	for _, i := range same {
		if w.Layout == "" || i.Layout == w.Layout {
			return i, nil
		}
	}
	have := same[0].Layout
	if have == "" {
		have = "not given"
	}
	return same[0], fmt.Errorf("%w: image %s was built for another argument layout (%s) than this program's (%s): run make kernels, and make build for images within plugins",
		framework.ErrUnavailable, same[0].ID, have, w.Layout)
}

func (w Want) typed(i framework.ImageInfo) bool {
	return w.Type == "" || i.Type == "" || i.Type == w.Type
}

func (w Want) ofType() string {
	if w.Type == "" {
		return ""
	}
	return ", type " + w.Type
}

func keep(list []framework.ImageInfo, f func(framework.ImageInfo) bool) (out []framework.ImageInfo) {
	for _, i := range list {
		if f(i) {
			out = append(out, i)
		}
	}
	return out
}

// archs lists the architectures of images, each once.
func archs(list []framework.ImageInfo) (out []string) {
	for _, i := range list {
		if !slices.Contains(out, i.Arch) {
			out = append(out, i.Arch)
		}
	}
	slices.Sort(out)
	return out
}

func or(names []string) string {
	if len(names) == 0 {
		return "no architecture"
	}
	return strings.Join(names, " or ")
}
