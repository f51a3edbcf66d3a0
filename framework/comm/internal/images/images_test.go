package images

import (
	"errors"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
)

func TestChoose(t *testing.T) {
	image := func(id, arch string, abi uint32, layout string) framework.ImageInfo {
		return framework.ImageInfo{ID: id, Arch: arch, Family: "k", ABI: abi, Layout: layout}
	}
	want := Want{Archs: []string{"sm_90", "compute_80"}, Family: "k", Type: "f32", ABI: 2, Layout: "new"}
	typed := image("f16", "sm_90", 2, "new")
	typed.Type = "f16"
	for name, c := range map[string]struct {
		list  []framework.ImageInfo
		image string
		err   string // "": none
	}{
		"the best architecture":          {[]framework.ImageInfo{image("ptx", "compute_80", 2, "new"), image("good", "sm_90", 2, "new")}, "good", ""},
		"an older ABI comes first":       {[]framework.ImageInfo{image("old", "sm_90", 1, "new"), image("good", "sm_90", 2, "new")}, "good", ""},
		"another layout comes first":     {[]framework.ImageInfo{image("old", "sm_90", 2, "old"), image("good", "sm_90", 2, "new")}, "good", ""},
		"a worse architecture fits":      {[]framework.ImageInfo{image("old", "sm_90", 2, "old"), image("ptx", "compute_80", 2, "new")}, "ptx", ""},
		"another type":                   {[]framework.ImageInfo{typed}, "", `no image of family "k", type f32: expected one for sm_90 or compute_80: build the kernels`},
		"none":                           {nil, "", `no image of family "k", type f32`},
		"other architectures":            {[]framework.ImageInfo{image("x", "gfx942", 2, "new")}, "", "are for gfx942 alone, and this device takes sm_90 or compute_80: build the kernels"},
		"another ABI alone":              {[]framework.ImageInfo{image("old", "sm_90", 1, "new")}, "", "image old has device ABI 1, expected 2: use one release"},
		"another layout alone":           {[]framework.ImageInfo{image("old", "sm_90", 2, "old")}, "old", "image old was built for another argument layout (old) than this program's (new): run make kernels"},
		"a layout that nobody has given": {[]framework.ImageInfo{image("old", "sm_90", 2, "")}, "old", "(not given)"},
	} {
		got, err := Choose(c.list, want)
		if got.ID != c.image {
			t.Errorf("%s: image %q, expected %q", name, got.ID, c.image)
		}
		switch {
		case c.err == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.err != "" && (!errors.Is(err, framework.ErrUnavailable) || !strings.Contains(err.Error(), c.err)):
			t.Errorf("%s: %v, expected ErrUnavailable with %q", name, err, c.err)
		}
	}
	want.Layout = ""
	if got, err := Choose([]framework.ImageInfo{image("old", "sm_90", 2, "old")}, want); err != nil || got.ID != "old" {
		t.Errorf("%v, %v: a program that does not say what it passes is not asked", got, err)
	}
}
