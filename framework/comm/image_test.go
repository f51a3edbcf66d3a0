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
	missing error
}

func (a *archive) Describe(ctx context.Context) (framework.Description, error) {
	d, err := a.Transport.Describe(ctx)
	d.Images = []framework.ImageInfo{a.info}
	d.Kernels = []framework.KernelInfo{{Symbol: "k", Family: a.info.Family}}
	return d, err
}

func (a *archive) Image(context.Context, string) ([]byte, error) { return []byte("image"), a.missing }

// loader is a device that takes every image.
type loader struct{ device.Device }

type module struct{ device.Module }

func (loader) Info() device.Info {
	return device.Info{Device: framework.Host, Archs: []string{"sm_90"}}
}
func (loader) Load([]byte) (device.Module, error)   { return module{}, nil }
func (module) Kernel(string) (device.Kernel, error) { return nil, nil }
func (module) Close() error                         { return nil }

// An image that was built for other arguments is never loaded, whatever device it is
// for. Who does not say what it passes is not asked.
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
			dev, err := host.Open()
			if err != nil {
				t.Fatal(err)
			}
			defer dev.Close()
			a := &archive{Transport: loopback.New(), missing: c.missing,
				info: framework.ImageInfo{ID: "k-sm_90", Arch: "sm_90", Family: "k", ABI: kernel.ABI, Layout: c.image}}
			tr, err := comm.NewTransport(t.Context(), a, "embedded")
			if err != nil {
				t.Fatal(err)
			}
			x, err := comm.New(t.Context(), bootstrap.InProcess(1)[0], comm.Options{Device: loader{dev}, Transports: []*comm.Transport{tr}})
			if err != nil {
				t.Fatal(err)
			}
			defer x.Close()
			k := x.Kernels()[0]
			k.Layout = c.kernel
			_, err = x.Load(t.Context(), k, kernel.Float32)
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
