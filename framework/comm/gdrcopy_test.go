package comm_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/framework/comm"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated"
)

// gdrcopy points the process to the emulated library of GDRCopy, a copy of it: what it lacks
// is looked for when it is opened. In the end nothing may be left mapped.
func gdrcopy(t *testing.T, lacks string) (calls func() []string) {
	t.Helper()
	if _, err := gpus(); err != nil {
		t.Skipf("needs a GPU, or a compiler for an emulated one: %v", err)
	}
	needsEmulated(t)
	library, err := os.ReadFile(emulated.GDRCopy(os.Getenv(cuda.EnvLibrary)))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "libgdrapi.so")
	if err := os.WriteFile(path, library, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(cuda.EnvGDRCopy, path)
	t.Setenv(emulated.EnvWithout, lacks)
	calls = emulated.GDRCopyCalls(t)
	t.Cleanup(func() {
		if err := emulated.GDRCopyLeft(calls()); err != nil {
			t.Error(err)
		}
	})
	return calls
}

// forwarded is a rank on an emulated GPU whose signals are forwarded.
type forwarded struct {
	*comm.Communicator
	dev *cuda.Device
	log bytes.Buffer
}

func forwardedJob(t *testing.T, f func(ctx context.Context, r *forwarded) error, opts ...cuda.Option) {
	t.Helper()
	newRig(2).each(t, func(ctx context.Context, boot *bootstrap.Local) (err error) {
		r := &forwarded{}
		if r.dev, err = cuda.Open(boot.Rank(), opts...); err != nil {
			return err
		}
		defer r.dev.Close()
		tr, err := comm.NewTransport(ctx, &adapter{side: newPosting()}, "embedded")
		if err != nil {
			return err
		}
		log := slog.New(slog.NewTextHandler(&r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		if r.Communicator, err = comm.New(ctx, boot, comm.Options{Device: r.dev, Transports: []*comm.Transport{tr}, Log: log}); err != nil {
			return err
		}
		return errors.Join(f(ctx, r), r.Close())
	})
}

func (r *forwarded) word(addr uintptr) (uint64, error) {
	var b [8]byte
	err := r.dev.ReadAt(b[:], addr)
	return binary.NativeEndian.Uint64(b[:]), err
}

// exchange signals with the peer over a new channel, and leaves a signal that nobody waits
// for. It returns the word at which kernels wait.
func (r *forwarded) exchange(ctx context.Context, m *comm.Memory) (uintptr, error) {
	ch, err := r.PortChannel(ctx, 1-r.Rank(), m, m)
	if err != nil {
		return 0, err
	}
	const rounds = 20
	s := ch.Handle().Semaphore
	if s.ID > 1 {
		return 0, fmt.Errorf("semaphore %d though only one is in use", s.ID)
	}
	if n, err := r.word(s.Inbound); n > 1 || err != nil { // the peer may be in its first round
		return 0, fmt.Errorf("%v: a new semaphore has seen %d signals", err, n)
	}
	for range rounds {
		if err := errors.Join(ch.PutWithSignal(1<<12, 0, 1<<12), ch.Wait(ctx)); err != nil {
			return 0, err
		}
	}
	if err := errors.Join(ch.Signal(), ch.Flush(ctx)); err != nil {
		return 0, err
	}
	for n := uint64(0); n != rounds+1; time.Sleep(20 * time.Microsecond) {
		if n, err = r.word(s.Inbound); err != nil || ctx.Err() != nil {
			return 0, fmt.Errorf("%v, %v: %d signals, expected %d", err, ctx.Err(), n, rounds+1)
		}
	}
	return s.Inbound, errors.Join(r.Barrier(ctx), ch.Close())
}

// pinnedBy reports whether an address is in memory that was pinned.
func pinnedBy(calls []string, addr uintptr) bool {
	for _, c := range calls {
		var first, bytes uintptr
		if n, _ := fmt.Sscanf(c, "pin %v %d", &first, &bytes); n == 2 && addr >= first && addr < first+bytes {
			return true
		}
	}
	return false
}

// With GDRCopy counts go to the counters of the GPU, through one mapping for all channels,
// also when the number of a channel was used before.
func TestSignalsAreForwardedToTheDevice(t *testing.T) {
	calls := gdrcopy(t, "")
	forwardedJob(t, func(ctx context.Context, r *forwarded) error {
		m, err := r.Alloc(1 << 16)
		if err != nil {
			return err
		}
		for range 4 {
			at, err := r.exchange(ctx, m)
			if err != nil {
				return err
			}
			if !pinnedBy(calls(), at) {
				return fmt.Errorf("kernels wait at %#x: expected memory that GDRCopy maps: %q", at, calls())
			}
		}
		if text := r.log.String(); strings.Count(text, "forwarded to memory of the device") != 1 {
			return fmt.Errorf("log %q: expected that it says where signals go", text)
		}
		return nil
	})
	if n := strings.Count(strings.Join(calls(), "\n"), "pin 0x"); n != 2 {
		t.Errorf("%d pins by 2 ranks: %q", n, calls())
	}
}

// Without GDRCopy, whatever part of it is missing, counts go to memory of the host, and the
// log says why.
func TestSignalsAreForwardedWithoutGDRCopy(t *testing.T) {
	for lacks, c := range map[string]struct {
		reason string
		opts   []cuda.Option
	}{
		"gdr_open":       {"gdr_open of GDRCopy", nil},
		"gdr_pin_buffer": {"gdr_pin_buffer of GDRCopy", nil},
		"gdr_map":        {"gdr_map of GDRCopy", nil},
		"gdr_version":    {"is of version 1.4", nil},
		"library":        {"no GDRCopy: /nowhere/libgdrapi.so", nil},
		"switched off":   {"GDRCopy is switched off", []cuda.Option{cuda.WithoutGDRCopy()}},
	} {
		t.Run(lacks, func(t *testing.T) {
			calls := gdrcopy(t, lacks)
			if lacks == "library" {
				t.Setenv(cuda.EnvGDRCopy, "/nowhere/libgdrapi.so")
			}
			forwardedJob(t, func(ctx context.Context, r *forwarded) error {
				m, err := r.Alloc(1 << 16)
				if err != nil {
					return err
				}
				at, err := r.exchange(ctx, m)
				if err != nil {
					return err
				}
				if pinnedBy(calls(), at) {
					return fmt.Errorf("kernels wait at %#x: expected memory of the host", at)
				}
				if text := r.log.String(); !strings.Contains(text, "by way of memory of the host") || !strings.Contains(text, c.reason) || strings.Contains(text, "by a stream") {
					return fmt.Errorf("log %q: expected the reason %q", text, c.reason)
				}
				return nil
			}, c.opts...)
		})
	}
}

// Kernels see data of a network no later than the counts that the host stores beside them.
func TestKernelsPollWhatGDRCopyStores(t *testing.T) {
	calls := gdrcopy(t, "")
	kernelsPut(t, adapters()["forwarded"])
	if len(calls()) == 0 {
		t.Error("nothing was mapped")
	}
}

// A communicator that fails while a kernel waits unmaps the counters before it frees them.
func TestNothingStaysMappedAfterAFailure(t *testing.T) {
	calls := gdrcopy(t, "")
	cudaJobOver(t, 2, adapters()["forwarded"], func(ctx context.Context, p *player) error {
		wait, err := waitInVain(ctx, p)
		if err != nil {
			return err
		}
		if err := wait(); err == nil {
			return errors.New("the kernel has not left its wait")
		}
		return nil
	})
	if len(calls()) == 0 {
		t.Error("nothing was mapped")
	}
}
