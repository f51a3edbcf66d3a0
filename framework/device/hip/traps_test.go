package hip

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/conformance"
	"github.com/mscclpp-go/mscclpp/framework/device/hip/emulated"
	"github.com/mscclpp-go/mscclpp/framework/device/native"
	"github.com/mscclpp-go/mscclpp/framework/kernel/image"
)

// as opens a library under a path of its own, which makes it another one to this package: of another version.
func as(t *testing.T, library string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), filepath.Base(library))
	if err := os.Symlink(library, path); err != nil {
		t.Fatal(err)
	}
	t.Setenv(EnvLibrary, path)
}

func open(t *testing.T, opts ...Option) *native.Marking {
	t.Helper()
	d, err := Open(0, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// conforms runs some tests of the suite over the library that the environment names.
func conforms(t *testing.T, code []byte, options, match string) {
	t.Helper()
	back, err := Backend()
	if err != nil {
		t.Fatal(err)
	}
	report, err := conformance.Suite(t.Context(), conformance.Options{Backend: back, Options: options, Image: code, Index: 1,
		Match: regexp.MustCompile(match), Child: &conformance.Command{Path: "/proc/self/exe"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range report.Results {
		if r.Error != "" || r.Lacks != "" {
			t.Error(r)
		}
	}
	if len(report.Results) == 0 {
		t.Errorf("no test matches %s", match)
	}
}

// exported returns the share of a kind that memory is exported with, until the test ends.
func exported(t *testing.T, m device.Memory, kind framework.ShareKind) framework.Share {
	t.Helper()
	shares, err := m.Export()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = framework.Parcel{Shares: shares}.Close() })
	i := slices.IndexFunc(shares, func(s framework.Share) bool { return s.Kind == kind })
	if i < 0 {
		t.Fatalf("shares %+v: expected one of kind %s", shares, kind)
	}
	return shares[i]
}

// HIP 5.7 has other numbers for memory of the host and for the flag of handles, the older layout of properties alone, and no
// function that exports dma-bufs, or that takes times of graphs.
func TestOlderVersion(t *testing.T) {
	code := emulate(t)
	_, older := emulated.Build(t)
	as(t, older)
	t.Setenv(emulated.EnvVersion, "5.7")
	conforms(t, code, "", "^(open/info|share/other-process|memory/registered|memory/wrapped|launch/result)$")
	d := open(t)
	m, err := d.Alloc(4096)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	stamp, err := d.NewStamp()
	if err != nil {
		t.Fatal(err)
	}
	defer stamp.Close()
	if err := stamp.RecordEach(0); !errors.Is(err, framework.ErrUnsupported) || !strings.Contains(err.Error(), "from HIP 6.4 on") {
		t.Errorf("times of graphs: %v: expected unsupported", err)
	}
	if s, err := m.(*native.Memory).DMABuf(); !errors.Is(err, framework.ErrUnsupported) {
		t.Errorf("dma-buf %+v, %v: expected unsupported", s, err)
	}
}

func TestTooOld(t *testing.T) {
	emulate(t)
	_, older := emulated.Build(t)
	as(t, older)
	t.Setenv(emulated.EnvVersion, "5.6")
	_, err := Count()
	if !errors.Is(err, framework.ErrUnavailable) || !strings.Contains(err.Error(), "of version 5.6 (answer 0): expected HIP 5.7 or later") {
		t.Errorf("%v: expected that 5.7 is asked for", err)
	}
}

func TestWithoutLibrary(t *testing.T) {
	t.Setenv(EnvLibrary, "/nonexistent/libamdhip64.so")
	if _, err := Open(0); !errors.Is(err, framework.ErrUnavailable) || !strings.Contains(err.Error(), "no HIP runtime of AMD") {
		t.Errorf("%v: expected that there is no runtime", err)
	}
}

// The library of the latest version is opened, and the name without a number, which may be of any version, last.
func TestNamesOfTheLibrary(t *testing.T) {
	emulate(t)
	library, older := emulated.Build(t)
	for _, have := range [][]string{{"libamdhip64.so.6"}, {"libamdhip64.so.5", "libamdhip64.so.6"}, {"libamdhip64.so.5"}, {"libamdhip64.so", "libamdhip64.so.5"}, {"libamdhip64.so"}} {
		dir, want := t.TempDir(), ""
		for _, name := range have {
			target := library
			if name == "libamdhip64.so.5" {
				target = older
			}
			if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
			want = max(want, name)
		}
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
		cmd.Env = append(os.Environ(), envRole+"=library", EnvLibrary+"=", "LD_LIBRARY_PATH="+dir, "LD_PRELOAD=")
		if want == "libamdhip64.so.5" {
			cmd.Env = append(cmd.Env, emulated.EnvVersion+"=5.7")
		}
		if out, err := cmd.CombinedOutput(); err != nil || string(out) != want {
			t.Errorf("of %s: %q, %v: expected %s", have, out, err, want)
		}
	}
}

// The runtime opens no handle in the process that made it: it would answer as if the memory were gone.
func TestOwnHandle(t *testing.T) {
	emulate(t)
	d := open(t)
	m, err := d.Alloc(4096)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	handle := exported(t, m, framework.ShareLegacyIPC)
	if _, err := d.Map(framework.Mapping{Shares: []framework.Share{handle}, Bytes: 4096}); !errors.Is(err, framework.ErrUnsupported) || !strings.Contains(err.Error(), "opens it in other processes only") {
		t.Errorf("%v: expected unsupported", err)
	}
}

// Numbers of GPUs are 16 digits, and not 16 bytes of any value.
func TestUUID(t *testing.T) {
	emulate(t)
	if id := open(t).UUID(); !regexp.MustCompile(`^[0-9a-f]{16}$`).Match(id[:]) {
		t.Errorf("%q: expected 16 hexadecimal digits", id)
	}
}

// Memory behind descriptors is uncached from HIP 7.0 on. Before, kernels that poll it would miss what peers write.
func TestDescriptors(t *testing.T) {
	code := emulate(t)
	d := open(t, VMM())
	if _, err := d.Alloc(4096); !errors.Is(err, framework.ErrUnsupported) || !strings.Contains(err.Error(), "uncached memory") {
		t.Errorf("%v: expected unsupported", err)
	}
	as(t, os.Getenv(EnvLibrary))
	t.Setenv(emulated.EnvVersion, "7.0")
	conforms(t, code, "memory=vmm", "^(memory/zeroed|share/other-process|share/outlived|share/garbage)$")
	later := open(t, VMM())
	m, err := later.Alloc(4096)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	exported(t, m, framework.ShareVMM)
}

// Memory that peers write has to be uncached. On gfx90a fine-grained memory will do where a library has no other; on gfx942 that
// is ordinary memory.
func TestUncached(t *testing.T) {
	emulate(t)
	t.Setenv(emulated.EnvWithout, "uncached")
	for arch, works := range map[string]bool{"gfx942:sramecc+:xnack-": false, "gfx90a:sramecc+:xnack-": true} {
		t.Setenv(emulated.EnvArch, arch)
		d := open(t)
		if got := d.Info().Archs; len(got) != 1 || got[0] != arch[:6] {
			t.Errorf("%s: architectures %v", arch, got)
		}
		m, err := d.Alloc(4096)
		if works {
			if err != nil {
				t.Fatal(err)
			}
			if err := m.Close(); err != nil {
				t.Error(err)
			}
			continue
		}
		if !errors.Is(err, framework.ErrUnsupported) || !strings.Contains(err.Error(), "hipExtMallocWithFlags answers hipErrorInvalidValue") {
			t.Errorf("%s: %v: expected unsupported, and the call", arch, err)
		}
	}
}

// Data needs no uncached memory, so that a library without it has memory for data, and behind descriptors before 7.0, too.
func TestDataIsCached(t *testing.T) {
	emulate(t)
	t.Setenv(emulated.EnvWithout, "uncached")
	for kind, opts := range map[framework.ShareKind][]Option{framework.ShareLegacyIPC: nil, framework.ShareVMM: {VMM()}} {
		d := open(t, opts...)
		if _, err := d.Alloc(4096); !errors.Is(err, framework.ErrUnsupported) {
			t.Errorf("%s: memory that kernels poll: %v: expected unsupported", kind, err)
		}
		m, err := d.AllocData(4096)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		exported(t, m, kind)
	}
}

// Handles are of whole allocations, and small ones would share a fragment, and so a handle.
func TestOwnFragments(t *testing.T) {
	emulate(t)
	d := open(t)
	var at []uintptr
	for range 3 {
		m, err := d.Alloc(100)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		at = append(at, m.Addr())
	}
	slices.Sort(at)
	for i := range 2 {
		if at[i+1]-at[i] < 2<<20 {
			t.Errorf("allocations at %#x and %#x: expected 2 MiB between them", at[i], at[i+1])
		}
	}
}

// The attribute that is the address of a register is wider than all others.
func TestFlush(t *testing.T) {
	emulate(t)
	d := open(t)
	if err := d.FlushWrites(); err != nil {
		t.Fatal(err)
	}
	if v, found := register(d); !found || v != 1 {
		t.Errorf("the register has %d, %v: expected 1", v, found)
	}
	t.Setenv(emulated.EnvWithout, "flush")
	if err := open(t).FlushWrites(); !errors.Is(err, framework.ErrUnsupported) {
		t.Errorf("without the register: %v: expected unsupported", err)
	}
}

// Functions that do other things than their names, or CUDA's names, suggest are not looked up at all.
func TestSymbols(t *testing.T) {
	for _, name := range symbolNames() {
		for _, bad := range []string{"hipStreamWriteValue", "hipStreamWaitValue", "hipCtx", "hipFuncSetAttribute", "hipPointerGetAttributes", "hipLaunchKernel"} {
			if strings.HasPrefix(name, bad) && name != "hipPointerGetAttribute" {
				t.Errorf("%s is looked up", name)
			}
		}
	}
}

// Code for another GPU, of another maker, and cut off.
func TestForeignImages(t *testing.T) {
	code := emulate(t)
	set, err := image.Open(os.DirFS("image"))
	if err != nil {
		t.Fatal(err)
	}
	other, err := set.Read("word-gfx90a")
	if err != nil {
		t.Fatal(err)
	}
	cuda := bytes.Clone(code)
	cuda[18] = 190
	sections := bytes.Clone(code)
	sections[40+7] = 0x7f // where its sections are
	d := open(t)
	for name, c := range map[string]struct {
		image []byte
		want  string
	}{
		"for another GPU": {other, "hipErrorNoBinaryForGpu"}, "of another maker": {cuda, "hipErrorInvalidImage"},
		"cut off": {code[:len(code)-100], "hipErrorInvalidImage"}, "with sections far away": {sections, "hipErrorInvalidImage"},
	} {
		if _, err := d.Load(c.image); !errors.Is(err, framework.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("an image %s: %v: expected invalid, and %s", name, err, c.want)
		}
	}
}

// The device of a thread is as it was behind every call.
func TestThreadsDevice(t *testing.T) {
	emulate(t)
	first := open(t)
	second, err := Open(1)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := current(first)
	err = second.Bound(func() error {
		m, err := first.Alloc(100)
		if err != nil {
			return err
		}
		if c := current(first); c != 1 {
			t.Errorf("the thread's device is %d behind a call for another one: expected 1", c)
		}
		return m.Close()
	})
	if err != nil {
		t.Fatal(err)
	}
	if c := current(first); c != before {
		t.Errorf("the thread's device is %d: expected %d", c, before)
	}
}

// HIP's variable hides devices, and where there is none, CUDA's does.
func TestVisible(t *testing.T) {
	emulate(t)
	for _, c := range []struct{ hip, cuda, want string }{{"1", "0,1", "1"}, {"", "0,1", "2"}, {"", "1", "1"}} {
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
		cmd.Env = append(os.Environ(), envRole+"=count", "HIP_VISIBLE_DEVICES="+c.hip, "CUDA_VISIBLE_DEVICES="+c.cuda)
		out, err := cmd.CombinedOutput()
		if err != nil || string(out) != c.want {
			t.Errorf("HIP_VISIBLE_DEVICES=%s CUDA_VISIBLE_DEVICES=%s: %q, %v: expected %s", c.hip, c.cuda, out, err, c.want)
		}
	}
}
