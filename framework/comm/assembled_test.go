package comm_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/kernel"
	"github.com/mscclpp-go/mscclpp/framework/transporttest/loopback"
)

// shelf is a transport with images of several families.
type shelf struct {
	framework.Transport
	kernels []framework.KernelInfo
	images  []framework.ImageInfo
	asked   []string
}

func (s *shelf) Describe(ctx context.Context) (framework.Description, error) {
	d, err := s.Transport.Describe(ctx)
	d.Kernels, d.Images = s.kernels, s.images
	return d, err
}

func (s *shelf) Image(_ context.Context, id string) ([]byte, error) {
	s.asked = append(s.asked, id)
	return []byte(id), nil
}

// add adds an image with the kernels of these names.
func (s *shelf) add(id, arch, typ, layout string, symbols ...string) {
	sum := sha256.Sum256([]byte(id))
	family, _, _ := strings.Cut(id, "-")
	s.images = append(s.images, framework.ImageInfo{ID: id, Arch: arch, Family: family, Type: typ, ABI: kernel.ABI, Layout: layout, SHA256: hex.EncodeToString(sum[:]), Bytes: uint64(len(id))})
	for _, symbol := range symbols {
		if !slices.ContainsFunc(s.kernels, func(k framework.KernelInfo) bool { return k.Symbol == symbol }) {
			s.kernels = append(s.kernels, framework.KernelInfo{Symbol: symbol, Family: family, Collective: "allreduce", Types: []string{"f32", "f16"}})
		}
	}
}

// chip is a device with machine code of some images.
type chip struct {
	device.Device
	code   map[string]bool // by sha256
	err    error
	loaded []string // forms and kernels
}

func (*chip) Info() device.Info {
	return device.Info{Device: framework.Host, Archs: []string{"sm_90", "sm_80"}}
}

func (c *chip) Load(image []byte) (device.Module, error) {
	return c.made("PTX", string(image)), nil
}

func (c *chip) LoadAssembled(sum string) (device.Module, error) {
	if c.err != nil || !c.code[sum] {
		return nil, c.err
	}
	return c.made("machine code", sum[:6]), nil
}

func (c *chip) made(form, what string) *chipModule {
	c.loaded = append(c.loaded, form+" "+what)
	return &chipModule{chip: c, form: form}
}

type chipModule struct {
	chip *chip
	form string
}

func (m *chipModule) Form() string { return m.form }
func (m *chipModule) Close() error { return nil }
func (m *chipModule) Kernel(symbol string) (device.Kernel, error) {
	m.chip.loaded = append(m.chip.loaded, symbol)
	return nil, nil
}

func shortSum(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:])
}

// A device that has machine code of an image gets that, and nobody is asked for the image.
// Else it gets the image.
func TestMachineCodeComesFirst(t *testing.T) {
	s := &shelf{Transport: loopback.NewByRank()}
	s.add("a-90", "sm_90", "", "", "ka")
	s.add("b-90", "sm_90", "", "", "kb")
	dev := &chip{Device: openHost(t), code: map[string]bool{shortSum("a-90"): true}}
	c, tr := aloneWith(t, s, dev)
	for _, k := range c.Kernels() {
		if _, err := c.Load(t.Context(), k, kernel.Float32); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"machine code " + shortSum("a-90")[:6], "ka", "PTX b-90", "kb"}; !slices.Equal(dev.loaded, want) || !slices.Equal(s.asked, []string{"b-90"}) {
		t.Errorf("loaded %q, asked for %q: expected %q", dev.loaded, s.asked, want)
	}
	if want := map[string]int{"machine code": 1, "PTX": 1}; !maps.Equal(tr.Forms(), want) {
		t.Errorf("forms %v, expected %v", tr.Forms(), want)
	}
	var dump bytes.Buffer
	if err := c.Dump(&dump); err != nil || !strings.Contains(dump.String(), "kernel images loaded: 1 as PTX, 1 as machine code") {
		t.Errorf("%v: dump %s", err, dump.String())
	}
}

// A device that cannot be asked any more says so.
func TestMachineCodeOfAClosedDevice(t *testing.T) {
	s := &shelf{Transport: loopback.NewByRank()}
	s.add("a-90", "sm_90", "", "", "ka")
	c, tr := aloneWith(t, s, &chip{Device: openHost(t), err: framework.ErrClosed})
	if _, err := c.Load(t.Context(), c.Kernels()[0], kernel.Float32); !errors.Is(err, framework.ErrClosed) {
		t.Errorf("%v: expected ErrClosed", err)
	}
	if err := tr.Preload(&chip{err: framework.ErrClosed}, []string{""}); !errors.Is(err, framework.ErrClosed) {
		t.Errorf("%v: expected ErrClosed", err)
	}
}

// Before any call, every kernel is loaded of which there is machine code that the device
// would choose, once, and nothing is compiled.
func TestPreload(t *testing.T) {
	s := &shelf{Transport: loopback.NewByRank()}
	s.add("both-f32-90", "sm_90", "f32", "ours", "k1", "k2")
	s.add("both-f16-90", "sm_90", "f16", "ours", "k1", "k2")
	s.add("both-f32-80", "sm_80", "f32", "ours")
	s.add("move-80", "sm_80", "", "second", "k3")
	s.add("none-90", "sm_90", "", "ours", "k4")
	s.add("strange-90", "sm_90", "", "theirs", "k5")
	dev := &chip{code: map[string]bool{}}
	for _, i := range s.images {
		dev.code[i.SHA256] = i.ID != "none-90"
	}
	tr, err := comm.NewTransport(t.Context(), s, "embedded")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := tr.Preload(dev, []string{"ours", "second"}); err != nil {
			t.Fatal(err)
		}
	}
	short := func(id string) string { return "machine code " + shortSum(id)[:6] }
	first := []string{short("both-f32-90"), "k1", short("both-f16-90"), "k1", "k2", "k2", short("move-80"), "k3"}
	again := []string{"k1", "k1", "k2", "k2", "k3"}
	if want := append(first, again...); !slices.Equal(dev.loaded, want) || len(s.asked) != 0 {
		t.Errorf("loaded %q, asked for %q: expected %q", dev.loaded, s.asked, want)
	}
	if err := tr.Preload(openHost(t), []string{"ours"}); err != nil {
		t.Errorf("a device without machine code: %v", err)
	}
	if err := tr.CloseModules(); err != nil || len(tr.Forms()) != 0 {
		t.Errorf("%v: %v is left", err, tr.Forms())
	}
}

// aloneWith is a communicator of one rank over a transport.
func aloneWith(t *testing.T, over framework.Transport, dev device.Device) (*comm.Communicator, *comm.Transport) {
	t.Helper()
	tr, err := comm.NewTransport(t.Context(), over, "embedded")
	if err != nil {
		t.Fatal(err)
	}
	boot := bootstrap.InProcess(1)[0]
	c, err := comm.New(t.Context(), boot, comm.Options{Device: dev, Transports: []*comm.Transport{tr}})
	if err != nil {
		t.Fatal(fmt.Errorf("comm: %w", err))
	}
	t.Cleanup(func() {
		if err := errors.Join(c.Close(), tr.CloseModules(), boot.Close()); err != nil {
			t.Error(err)
		}
	})
	return c, tr
}
