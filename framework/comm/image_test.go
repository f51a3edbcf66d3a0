package comm_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/host"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/transporttest/loopback"
)

// archive is a transport with one image.
type archive struct {
	framework.Transport
	info    framework.ImageInfo
	more    []framework.ImageInfo // behind it
	missing error
	asked   chan struct{} // nil, or closed when an image is asked for, which then comes only with the end of the context
}

func (a *archive) Describe(ctx context.Context) (framework.Description, error) {
	d, err := a.Transport.Describe(ctx)
	d.Images = append([]framework.ImageInfo{a.info}, a.more...)
	if a.info.Family != "" {
		d.Kernels = []framework.KernelInfo{{Symbol: "k", Family: a.info.Family, Collective: "barrier"}}
	}
	return d, err
}

func (a *archive) Image(ctx context.Context, id string) ([]byte, error) {
	if a.asked != nil {
		close(a.asked)
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return []byte(id), a.missing
}

// loader is a device that takes every image.
type loader struct {
	device.Device
	loaded *string // nil: it is not noted
}

type module struct{ device.Module }

func (loader) Info() device.Info {
	return device.Info{Device: framework.Host, Archs: []string{"sm_90"}}
}
func (l loader) Load(code []byte) (device.Module, error) {
	if l.loaded != nil {
		*l.loaded = string(code)
	}
	return module{}, nil
}
func (module) Kernel(string) (device.Kernel, error) { return nil, nil }
func (module) Close() error                         { return nil }

// open joins a communicator of one rank over the archive, whose device takes every image.
func (a *archive) open(t *testing.T, dev device.Device) *comm.Communicator {
	t.Helper()
	tr, err := comm.NewTransport(t.Context(), a, "embedded")
	if err != nil {
		t.Fatal(err)
	}
	x, err := comm.New(t.Context(), bootstrap.InProcess(1)[0], comm.Options{Device: dev, Transports: []*comm.Transport{tr}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.Close() })
	return x
}

// A transport may carry images of several releases: the one that fits is taken, wherever
// in the list it is.
func TestImageOfThisProgramIsChosen(t *testing.T) {
	info := framework.ImageInfo{ID: "abi", Arch: "sm_90", Family: "k", ABI: kernel.ABI + 1, Layout: "aa"}
	layout, good := info, info
	layout.ID, layout.ABI, layout.Layout = "layout", kernel.ABI, "bb"
	good.ID, good.ABI = "good", kernel.ABI
	for _, c := range []struct {
		more []framework.ImageInfo
		want string
	}{
		{[]framework.ImageInfo{layout, good}, ""},
		{nil, "image abi has device ABI"},
		{[]framework.ImageInfo{layout}, "image layout was built for another argument layout (bb)"},
	} {
		loaded := ""
		a := &archive{Transport: loopback.New(), info: info, more: c.more}
		x := a.open(t, loader{openHost(t), &loaded})
		k := x.Kernels()[0]
		k.Layout = "aa"
		_, err := x.Load(t.Context(), k, kernel.Float32)
		switch {
		case c.want == "" && (err != nil || loaded != "good"):
			t.Errorf("%v, loaded %q: expected the image that fits", err, loaded)
		case c.want != "" && (!errors.Is(err, framework.ErrUnavailable) || !strings.Contains(err.Error(), c.want) || loaded != ""):
			t.Errorf("%v, loaded %q: expected ErrUnavailable with %q", err, loaded, c.want)
		}
	}
}

// The error for a missing kernel says what to change.
func TestNoKernelNamesTheReason(t *testing.T) {
	good := framework.ImageInfo{ID: "good", Arch: "sm_90", Family: "k", ABI: kernel.ABI, Layout: "aa"}
	change := func(f func(*framework.ImageInfo)) framework.ImageInfo {
		i := good
		f(&i)
		return i
	}
	barrier := func(k framework.KernelInfo) bool { return k.Collective == "barrier" }
	for name, c := range map[string]struct {
		info  framework.ImageInfo
		match func(framework.KernelInfo) bool
		want  string
	}{
		"no kernels": {framework.ImageInfo{}, barrier, "loopback describes no kernels; "},
		"others":     {good, func(framework.KernelInfo) bool { return false }, "loopback describes kernels for other work alone; "},
		"arch":       {change(func(i *framework.ImageInfo) { i.Arch = "gfx942" }), barrier, "loopback cannot load k: images of family \"k\" are for gfx942 alone, and this device takes sm_90: build"},
		"ABI":        {change(func(i *framework.ImageInfo) { i.ABI = 9 }), barrier, "loopback cannot load k: image good has device ABI 9, expected 1: use one release"},
		"layout":     {change(func(i *framework.ImageInfo) { i.Layout = "bb" }), barrier, "loopback cannot load k: image good was built for another argument layout (bb)"},
		"call":       {good, barrier, "loopback has k, which does not take this call; "},
	} {
		x := (&archive{Transport: loopback.New(), info: c.info}).open(t, loader{Device: openHost(t)})
		err := x.NoKernel("a barrier", "aa", c.match)
		if !errors.Is(err, framework.ErrUnavailable) || !strings.Contains(err.Error(), "no transport has a kernel for a barrier: "+c.want) || !strings.Contains(err.Error(), "expected in transports one with kernels for host") {
			t.Errorf("%s: %v: expected %q and what to do", name, err, c.want)
		}
	}
}

func openHost(t *testing.T) device.Device {
	t.Helper()
	dev, err := host.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	return dev
}

// A kernel that is being loaded when the communicator ends fails with the cause of the end.
func TestLoadEndsWithTheCommunicator(t *testing.T) {
	info := framework.ImageInfo{ID: "k-sm_90", Arch: "sm_90", Family: "k", ABI: kernel.ABI}
	a := &archive{Transport: loopback.New(), info: info, asked: make(chan struct{})}
	x := a.open(t, loader{Device: openHost(t)})
	ended := errors.New("enough")
	go func() {
		<-a.asked
		x.Abort(ended)
	}()
	if _, err := x.Load(t.Context(), x.Kernels()[0], kernel.Float32); !errors.Is(err, ended) || !strings.Contains(err.Error(), "load kernel k of loopback") {
		t.Errorf("%v, expected what has ended the communicator", err)
	}
}

// An image that was built for other arguments is never loaded, whatever device it is for. A
// transport that does not say what its arguments are is not asked.
func TestImageOfAnotherLayout(t *testing.T) {
	unbuilt := fmt.Errorf("%w: not built", framework.ErrUnavailable)
	for name, c := range map[string]struct {
		image, kernel string
		missing       error
		want          string
	}{
		"equal":            {image: "aa", kernel: "aa"},
		"not asked":        {image: "aa"},
		"other":            {image: "aa", kernel: "bb", want: "image k-sm_90 was built for another argument layout (aa) than this program's (bb): run make kernels"},
		"image without":    {kernel: "bb", want: "another argument layout (not given)"},
		"not there at all": {kernel: "bb", missing: unbuilt, want: "not built"},
	} {
		t.Run(name, func(t *testing.T) {
			a := &archive{Transport: loopback.New(), missing: c.missing,
				info: framework.ImageInfo{ID: "k-sm_90", Arch: "sm_90", Family: "k", ABI: kernel.ABI, Layout: c.image}}
			x := a.open(t, loader{Device: openHost(t)})
			k := x.Kernels()[0]
			k.Layout = c.kernel
			_, err := x.Load(t.Context(), k, kernel.Float32)
			if c.want == "" {
				if err != nil {
					t.Errorf("%v: expected the image to be loaded", err)
				}
				return
			}
			if !errors.Is(err, framework.ErrUnavailable) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v: expected ErrUnavailable with %q", err, c.want)
			}
		})
	}
}
