package cuda

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated"
	"github.com/mscclpp-go/mscclpp/framework/device/host"
)

// Devices that lack an ability are used without it, or refused with the reason. The
// driver reads what it lacks once, so each case has a process of its own.
func TestWithoutAbilities(t *testing.T) {
	open(t, 1)
	if !isEmulated() {
		t.Skip("needs the emulated driver: no GPU has abilities that can be switched off")
	}
	for name := range lacking {
		t.Run(name, func(t *testing.T) {
			t.Setenv(emulated.EnvWithout, name)
			if out, err := start(t, "without", name, nil); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

func withoutRole() error { return lacking[os.Getenv(emulated.EnvWithout)]() }

var lacking = map[string]func() error{
	"vmm": func() error { // older memory instead of that behind handles
		return shares("local", "legacy-ipc")
	},
	"ipc": func() error {
		return shares("local", "vmm")
	},
	"dmabuf": func() error { // asked for, but not to be had
		d, err := Open(0, DMABuf())
		if err != nil {
			return err
		}
		m, err := d.Alloc(100)
		if err != nil {
			return err
		}
		if got, err := m.Export(); err != nil || slices.Contains(kinds(got), "dma-buf") {
			return fmt.Errorf("%v, %v: expected no dma-buf", kinds(got), err)
		}
		_, err = m.(*Memory).DMABuf()
		return expect(err, framework.ErrUnsupported, "dma-buf")
	},
	"register": func() error {
		d, err := Open(0)
		if err != nil {
			return err
		}
		h, err := host.Open()
		if err != nil {
			return err
		}
		m, err := h.Alloc(4096)
		if err != nil {
			return err
		}
		s, err := m.Export()
		if err != nil {
			return err
		}
		_, err = d.Map(framework.Mapping{Shares: s, Bytes: 4096})
		return expect(err, framework.ErrUnsupported, "memfd: cuda:0 register: unsupported: ")
	},
	"memops": func() error {
		_, err := Open(0)
		return expect(err, framework.ErrUnavailable, "64-bit stream memory operations")
	},
	"ordered":       func() error { return flush(nil, "") },
	"flush":         func() error { return flush(nil, "") }, // nothing to flush
	"ordered,flush": func() error { return flush(framework.ErrUnsupported, "keeps such writes in order") },
	"peer": func() error {
		a, err := Open(0)
		if err != nil {
			return err
		}
		b, err := Open(1)
		if err != nil {
			return err
		}
		if ok, err := b.Reaches(0); err != nil || ok {
			return fmt.Errorf("reaches the other: %v, %v", ok, err)
		}
		m, err := a.Alloc(4096)
		if err != nil {
			return err
		}
		s, err := m.Export()
		if err != nil {
			return err
		}
		_, err = b.Map(framework.Mapping{Shares: s[:1], Bytes: 4096})
		return expect(err, framework.ErrUnsupported, "cuda:1 has no peer access to cuda:0")
	},
}

func shares(want ...string) error {
	d, err := Open(0)
	if err != nil {
		return err
	}
	var m device.Memory
	if m, err = d.Alloc(1 << 20); err != nil {
		return err
	}
	all, err := m.Export()
	if got := kinds(all); err != nil || !slices.Equal(got, want) {
		return fmt.Errorf("%v, %v: expected %v", got, err, want)
	}
	return errors.Join(m.Close(), d.Close())
}

// flush makes writes of adapters visible, of an open device and of one that is not.
func flush(class error, text string) error {
	d, err := Open(0)
	if err != nil {
		return err
	}
	if err = d.FlushWrites(); class != nil {
		err = expect(err, class, text)
	}
	return errors.Join(err, d.Close(), expect(d.FlushWrites(), framework.ErrClosed, "flush"))
}

func expect(err, class error, text string) error {
	if !errors.Is(err, class) || !strings.Contains(err.Error(), text) {
		return fmt.Errorf("%w: expected %w, and %q", err, class, text)
	}
	return nil
}
